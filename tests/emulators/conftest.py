"""An emulated account for each test, and the official client on it, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

from committer.testing.emulators.adls import AdlsEmulator, serve

from .clients import client


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        yield emulator


@pytest.fixture
async def service(emulator: AdlsEmulator) -> AsyncIterator[DataLakeServiceClient]:
    async with client(emulator) as service:
        yield service


@pytest.fixture
async def files(service: DataLakeServiceClient) -> AsyncIterator[FileSystemClient]:
    """An empty filesystem, `data`."""
    async with await service.create_file_system("data") as files:
        yield files

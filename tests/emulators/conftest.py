"""An emulated account for each test, and the official client on it, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from committer.testing.emulators.adls import AdlsEmulator, serve
from tests.emulators.hadoop_azure import Abfs, jars
from tests.interop.jvm import Jvm, jvm_fixture

if TYPE_CHECKING:
    from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

# The judges are extras: `adls` brings the official clients, `spark` Hadoop and the way into its JVM.
if find_spec("azure") is None or find_spec("azure.storage.filedatalake") is None:
    collect_ignore_glob = ["test_adls_*.py"]
elif find_spec("py4j") is None:
    collect_ignore_glob = ["test_adls_hadoop.py", "test_adls_java_jobs.py"]


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        yield emulator


@pytest.fixture
async def service(emulator: AdlsEmulator) -> AsyncIterator[DataLakeServiceClient]:
    from .clients import client

    async with client(emulator) as service:
        yield service


@pytest.fixture
async def files(service: DataLakeServiceClient) -> AsyncIterator[FileSystemClient]:
    """An empty filesystem, `data`."""
    async with await service.create_file_system("data") as files:
        yield files


# Java with hadoop-azure.
jvm = jvm_fixture(jars)


@pytest.fixture
async def abfs(jvm: Jvm, emulator: AdlsEmulator) -> AsyncIterator[Abfs]:
    """Hadoop's client on a filesystem, `data`."""
    abfs = await Abfs(jvm, emulator, "data").open()
    yield abfs
    await abfs.close()

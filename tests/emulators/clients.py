"""The official client as these tests use it: no retries, so that each call's own answer is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake.aio import DataLakeFileClient, DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator


def client(emulator: AdlsEmulator, credential: Any = None, **options: Any) -> DataLakeServiceClient:
    """A client, with the account's key unless told otherwise."""
    return DataLakeServiceClient(
        emulator.url, credential=emulator.settings.key if credential is None else credential, retry_total=0, **options
    )


async def write(files: FileSystemClient, path: str, data: bytes = b"data") -> DataLakeFileClient:
    """A file with that content."""
    file = await files.create_file(path)
    if data:
        await file.append_data(data, 0)
        await file.flush_data(len(data))
    return file


async def read(files: FileSystemClient, path: str) -> bytes:
    """What a file holds."""
    return await (await files.get_file_client(path).download_file()).readall()


async def names(files: FileSystemClient, path: str | None = None, **options: Any) -> list[str]:
    """What a listing gives, in its order."""
    return [entry.name async for entry in files.get_paths(path, **options)]


@contextmanager
def refused(status: int, code: str) -> Iterator[None]:
    """The service's refusal: its status and code as the official client reads them, or as its header has them."""
    with pytest.raises(HttpResponseError) as caught:
        yield
    error = caught.value
    given = getattr(error, "error_code", None)
    if given is None and error.response is not None:
        given = error.response.headers.get("x-ms-error-code")
    assert (error.status_code, getattr(given, "value", given)) == (status, code)

"""The emulator in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake.aio import DataLakeServiceClient

KEY = "a2V5"


def emulator(*arguments: str) -> Coroutine[Any, Any, Process]:
    command = (sys.executable, "-m", "committer_testing.emulators.adls", *arguments)
    return asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


@asynccontextmanager
async def served(*arguments: str, stop: int = signal.SIGTERM) -> AsyncIterator[str]:
    """Starts an emulator and yields its URL; the emulator must exit with 0 when stopped."""
    process = await emulator("--key", KEY, *arguments)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        yield url
    finally:
        process.send_signal(stop)
        left, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, left, errors) == (0, b"", b"")


async def test_it_prints_its_url_serves_and_ends_when_told() -> None:
    options = ("--port", "0", "--account", "mine", "--soft-delete-days", "9")
    async with served(*options, "--filesystem", "data", "--filesystem", "more") as url:
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/mine")
        async with DataLakeServiceClient(url, credential=KEY) as service:
            assert [one.name async for one in service.list_file_systems()] == ["data", "more"]
            assert (await service.get_service_properties())["delete_retention_policy"].days == 9
            files = service.get_file_system_client("data")
            await files.create_directory("a/b")
            assert [entry.name async for entry in files.get_paths()] == ["a", "a/b"]


async def test_rate_kind_and_tokens_are_options() -> None:
    async with served("--rate", "1", "--flat", "--token", "a.b.c", stop=signal.SIGINT) as url:
        async with DataLakeServiceClient(url, credential=KEY, retry_total=0) as service:
            assert (await service._blob_service_client.get_account_information())["is_hns_enabled"] is False
            with pytest.raises(HttpResponseError) as caught:
                await service.create_file_system("data")
            assert caught.value.status_code == 503


@pytest.mark.parametrize(
    "arguments", [["--key", "no base64!"], ["--certificate", "/no/such/file"], ["--filesystem", "No/Name"]]
)
async def test_what_cannot_start_says_why(arguments: list[str]) -> None:
    process = await emulator(*arguments)
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, output) == (1, b"")
    assert errors.startswith(b"error: ")
    assert b"Traceback" not in errors

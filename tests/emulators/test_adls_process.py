"""The emulator in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake.aio import DataLakeServiceClient

KEY = "a2V5"


async def start(*arguments: str) -> Process:
    module = "committer_testing.emulators.adls"
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdout=PIPE, stderr=PIPE)


async def test_it_prints_its_url_serves_and_ends_when_told() -> None:
    process = await start("--port", "0", "--account", "mine", "--key", KEY)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    assert url.startswith("http://127.0.0.1:")
    assert url.endswith("/mine")

    async with DataLakeServiceClient(url, credential=KEY) as service:
        files = await service.create_file_system("data")
        await files.create_directory("a/b")
        assert [entry.name async for entry in files.get_paths()] == ["a", "a/b"]

        process.send_signal(signal.SIGTERM)
        left, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, left, errors) == (0, b"", b"")


async def test_rate_kind_and_tokens_are_options() -> None:
    process = await start("--key", KEY, "--rate", "1", "--flat", "--token", "a.b.c")
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        async with DataLakeServiceClient(url, credential=KEY, retry_total=0) as service:
            assert (await service._blob_service_client.get_account_information())["is_hns_enabled"] is False
            with pytest.raises(HttpResponseError) as caught:
                await service.create_file_system("data")
            assert caught.value.status_code == 503
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0


async def test_soft_delete_is_an_option() -> None:
    process = await start("--key", KEY, "--soft-delete-days", "9")
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        async with DataLakeServiceClient(url, credential=KEY, retry_total=0) as service:
            assert (await service.get_service_properties())["delete_retention_policy"].days == 9
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0


async def test_a_filesystem_may_be_there_at_once() -> None:
    process = await start("--key", KEY, "--filesystem", "data", "--filesystem", "more")
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        async with DataLakeServiceClient(url, credential=KEY) as service:
            assert [one.name async for one in service.list_file_systems()] == ["data", "more"]
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)


@pytest.mark.parametrize(
    "arguments", [["--key", "no base64!"], ["--certificate", "/no/such/file"], ["--filesystem", "No/Name"]]
)
async def test_what_cannot_start_says_why(arguments: list[str]) -> None:
    process = await start(*arguments)
    output, errors = await asyncio.wait_for(process.communicate(), 30)

    assert (process.returncode, output) == (1, b"")
    assert errors.startswith(b"error: ")
    assert b"Traceback" not in errors

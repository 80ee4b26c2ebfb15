"""Listing and deleting what takes more than one page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from committer_testing.emulators.adls.conditions import Conditions

from .clients import client, names, refused, write


async def pages(files: FileSystemClient, path: str | None = None, **options: object) -> AsyncIterator[list[str]]:
    async for page in files.get_paths(path, **options).by_page():
        yield [entry.name async for entry in page]


def joined(found: list[list[str]]) -> list[str]:
    return [name for page in found for name in page]


async def test_a_level_and_a_tree_each_path_once(files: FileSystemClient) -> None:
    for path in ("b/y/2", "b/x", "a", "b.c/3"):
        await write(files, path)

    assert await names(files, recursive=False) == ["a", "b", "b.c"]
    assert await names(files, "b", recursive=False) == ["b/x", "b/y"]
    assert await names(files) == ["a", "b", "b/x", "b/y", "b/y/2", "b.c", "b.c/3"]
    assert await names(files, "b/y") == ["b/y/2"]


async def test_entries_tell_what_a_status_does(files: FileSystemClient) -> None:
    file = await write(files, "a/file", b"12345")
    status = await file.get_file_properties()

    directory, listed = [entry async for entry in files.get_paths()]

    assert (directory.is_directory, directory.content_length, directory.permissions) == (True, 0, "rwxr-x---")
    assert (listed.is_directory, listed.content_length) == (False, 5)
    # The service writes etags in listings without their quotes.
    assert listed.etag == status.etag.strip('"')
    # The official client leaves the zone of a listing's time out.
    assert listed.last_modified.replace(tzinfo=UTC) == status.last_modified
    assert listed.owner == "$superuser"
    assert abs(listed.creation_time.replace(tzinfo=UTC).timestamp() - time.time()) < 60


async def test_pages_are_as_long_as_asked_for(files: FileSystemClient) -> None:
    for number in range(12):
        await files.create_file(f"d/{number:02d}")

    found = [page async for page in pages(files, "d", max_results=5)]

    assert [len(page) for page in found] == [5, 5, 2]
    assert joined(found) == [f"d/{number:02d}" for number in range(12)]


@pytest.mark.parametrize("size", range(1, 9))
async def test_pages_of_any_length_make_up_the_tree(files: FileSystemClient, size: int) -> None:
    for path in ("a/b/c/1", "a/b/2", "a/3", "a.x", "d/4", "e"):
        await write(files, path, b"")

    found = [page async for page in pages(files, max_results=size)]

    assert max(len(page) for page in found) <= size
    assert joined(found) == await names(files)


async def test_a_listing_goes_on_behind_what_was_deleted_meanwhile(files: FileSystemClient) -> None:
    for number in range(6):
        await files.create_file(f"d/{number}")
    found = pages(files, "d", max_results=2)
    assert await anext(found) == ["d/0", "d/1"]

    await files.delete_file("d/1")
    await files.delete_file("d/2")

    assert [page async for page in found] == [["d/3", "d/4"], ["d/5"]]


async def test_a_missing_directory_and_a_bad_continuation_are_refused(
    files: FileSystemClient, service: DataLakeServiceClient
) -> None:
    with refused(404, "PathNotFound"):
        await names(files, "nothing")
    with refused(404, "FilesystemNotFound"):
        await names(service.get_file_system_client("nothing"))
    with pytest.raises(HttpResponseError) as caught:
        _ = [page async for page in files.get_paths().by_page(continuation_token="nonsense")]
    assert caught.value.status_code == 400


async def fill(emulator: AdlsEmulator, count: int) -> None:
    """Puts files there without HTTP."""
    for number in range(count):
        emulator.namespace.create(
            "data", f"big/{number % 10}/{number:06d}", directory=False, conditions=Conditions({}), lease=None
        )


async def test_a_hundred_thousand_entries_page_well() -> None:
    # Without the official client, which takes ten times as long over this as the server.
    token = {"Authorization": "Bearer a.b.c"}
    async with serve(Settings(bearer_tokens=frozenset({"a.b.c"}))) as emulator, aiohttp.ClientSession() as session:
        emulator.namespace.create_filesystem("data", {})
        await fill(emulator, 100_000)
        parameters = {"resource": "filesystem", "recursive": "true", "directory": "big"}
        found: list[str] = []
        requests = 0
        started = time.process_time()
        while requests == 0 or "continuation" in parameters:
            async with session.get(f"{emulator.url}/data", params=parameters, headers=token) as answer:
                found += [entry["name"] for entry in (await answer.json())["paths"]]
            parameters["continuation"] = answer.headers.get("x-ms-continuation", "")
            if not parameters["continuation"]:
                del parameters["continuation"]
            requests += 1

    assert (requests, len(found), len(set(found))) == (21, 100_010, 100_010)
    assert found == sorted(found)
    # 0.8 s on the machine it was written on. Were a page to cost the whole listing, it would be ten times that.
    assert time.process_time() - started < 6


async def test_a_recursive_delete_goes_on_until_all_is_gone(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    await fill(emulator, 100_000)
    emulator.conduct.log.clear()

    # The official client follows the continuation by itself.
    await files.delete_directory("big")

    assert len(emulator.conduct.log) == 21
    assert await names(files) == []


async def test_a_delete_that_stopped_left_the_rest() -> None:
    async with serve(Settings(delete_page=3)) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        for path in ("a/b/1", "a/b/2", "a/c/3", "a/c/4", "a/5"):
            await write(files, path, b"")
        emulator.conduct.faults.append(Fault(kind="error", operation="delete", skip=1, count=1))

        with refused(500, "InternalError"):
            await files.delete_directory("a")
        left = await names(files)
        assert (left[0], len(left)) == ("a", 8 - 3)

        await files.delete_directory("a")
        assert await names(files) == []


async def test_an_account_that_deletes_at_once_needs_no_continuation() -> None:
    async with serve(Settings(delete_page=0)) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        await fill(emulator, 20_000)

        await files.delete_directory("big")

        assert [entry.operation for entry in emulator.conduct.log] == ["create-filesystem", "delete"]
        assert emulator.namespace.find("data", "big") is None

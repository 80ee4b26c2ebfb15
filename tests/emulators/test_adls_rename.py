"""Renames, as the official client sends them."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any, Literal

import pytest
from azure.core import MatchConditions
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import Settings, serve

from .clients import client, names, read, refused, write


async def test_a_file_moves_with_its_etag_and_metadata(files: FileSystemClient) -> None:
    file = await write(files, "a/file", b"hello")
    await files.create_directory("b")
    await file.set_metadata({"who": "me"})
    before = await file.get_file_properties()

    moved = await file.rename_file("data/b/moved")

    after = await moved.get_file_properties()
    assert await read(files, "b/moved") == b"hello"
    assert await names(files) == ["a", "b", "b/moved"]
    assert (after.etag, after.last_modified, after.metadata) == (before.etag, before.last_modified, {"who": "me"})


async def test_a_name_with_spaces_percents_and_letters_beyond_ascii_moves(files: FileSystemClient) -> None:
    file = await write(files, "a b/50% ä+?#.txt", b"1")

    await file.rename_file("data/a b/day=2024-01-01 00%3A00 ü")

    assert await names(files, "a b") == ["a b/day=2024-01-01 00%3A00 ü"]


@pytest.mark.parametrize(
    ("conditions", "refusal"),
    [
        ({"match_condition": MatchConditions.IfMissing}, (409, "PathAlreadyExists")),
        ({"etag": '"0x1"', "match_condition": MatchConditions.IfNotModified}, (412, "ConditionNotMet")),
        ({"etag": "TARGET", "match_condition": MatchConditions.IfNotModified}, None),
        (
            {"source_etag": '"0x1"', "source_match_condition": MatchConditions.IfNotModified},
            (412, "SourceConditionNotMet"),
        ),
        ({"source_etag": "SOURCE", "source_match_condition": MatchConditions.IfNotModified}, None),
        ({}, None),
    ],
)
async def test_conditions_on_both_ends_are_checked(
    files: FileSystemClient, conditions: dict[str, Any], refusal: tuple[int, str] | None
) -> None:
    old, new = await write(files, "old", b"old"), await write(files, "new", b"new")
    etags = {"SOURCE": (await old.get_file_properties()).etag, "TARGET": (await new.get_file_properties()).etag}
    sent = {name: etags.get(value, value) for name, value in conditions.items()}
    with refused(*refusal) if refusal else nullcontext():
        await old.rename_file("data/new", **sent)
    assert await read(files, "new") == (b"new" if refusal else b"old")
    assert await names(files) == (["new", "old"] if refusal else ["new"])


async def test_a_missing_end_is_named_and_not_made_up(files: FileSystemClient) -> None:
    file = await write(files, "file")
    await write(files, "other")
    nothing, directory = files.get_file_client("nothing"), files.get_directory_client("nothing")
    for call, target, refusal in (
        (nothing.rename_file, "data/new", (404, "SourcePathNotFound")),
        (directory.rename_directory, "data/new", (404, "SourcePathNotFound")),
        (file.rename_file, "data/no/such/file", (404, "RenameDestinationParentPathNotFound")),
        (file.rename_file, "data/other/file", (409, "InvalidDestinationPath")),
        (file.rename_file, "elsewhere/file", (404, "FilesystemNotFound")),
        (file.rename_file, "data/file.", (400, "InvalidResourceName")),
    ):
        with refused(*refusal):
            await call(target)
    assert await names(files) == ["file", "other"]


async def test_a_file_moves_to_another_filesystem(files: FileSystemClient, service: DataLakeServiceClient) -> None:
    file = await write(files, "file", b"1")
    async with await service.create_file_system("other") as other:
        await file.rename_file("other/file")

        assert await read(other, "file") == b"1"
    assert await names(files) == []


async def test_a_directory_moves_with_all_it_holds_and_no_etag_changes(files: FileSystemClient) -> None:
    await write(files, "a/b/one")
    await write(files, "a/b/c/two")
    before = {entry.name: entry.etag async for entry in files.get_paths()}

    await files.get_directory_client("a/b").rename_directory("data/a/z")

    after = {entry.name: entry.etag async for entry in files.get_paths()}
    assert after == {name.replace("a/b", "a/z"): etag for name, etag in before.items()}


@pytest.mark.parametrize("code", ["DirectoryNotEmpty", "PathAlreadyExists"])
async def test_a_directory_moves_onto_an_empty_one_only(code: Any) -> None:
    """The service's code for a full one is a switch."""
    async with serve(Settings(non_empty_target_code=code)) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        directory = await files.create_directory("from")
        await write(files, "from/file")
        await files.create_directory("empty")
        await write(files, "full/file")
        with refused(409, code):
            await directory.rename_directory("data/full")
        await directory.rename_directory("data/empty")
        assert await names(files) == ["empty", "empty/file", "full", "full/file"]


async def test_a_directory_cannot_move_below_itself_or_onto_itself(files: FileSystemClient) -> None:
    directory = await files.create_directory("a")

    for target in ("data/a", "data/a/b"):
        with refused(409, "InvalidRenameSourcePath"):
            await directory.rename_directory(target)


async def test_file_and_directory_do_not_replace_one_another(files: FileSystemClient) -> None:
    file = await write(files, "file")
    directory = await files.create_directory("directory")

    with refused(409, "InvalidSourceOrDestinationResourceType"):
        await file.rename_file("data/directory")
    with refused(409, "InvalidSourceOrDestinationResourceType"):
        await directory.rename_directory("data/file")


async def test_a_leased_source_needs_its_lease(files: FileSystemClient) -> None:
    file = await write(files, "file")
    lease = await file.acquire_lease()

    with refused(412, "LeaseIdMissing"):
        await file.rename_file("data/moved")
    with refused(412, "LeaseIdMismatch"):
        await file.rename_file("data/moved", source_lease="00000000-0000-0000-0000-000000000001")
    await file.rename_file("data/moved", source_lease=lease)

    assert await names(files) == ["moved"]


@pytest.mark.parametrize("breaks", [True, False])
async def test_whether_a_leased_target_is_replaced_is_a_switch(breaks: bool) -> None:
    async with serve(Settings(overwriting_breaks_lease=breaks)) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        file = await write(files, "file", b"new")
        target = await write(files, "target", b"old")
        await target.acquire_lease()

        if breaks:
            await file.rename_file("data/target")
            assert await read(files, "target") == b"new"
        else:
            with refused(412, "LeaseIdMissing"):
                await file.rename_file("data/target")


@pytest.mark.parametrize("etag", ["kept", "changed"])
async def test_whether_the_etag_survives_is_a_switch(etag: Literal["kept", "changed"]) -> None:
    settings = dataclasses.replace(Settings(), etag_through_rename=etag)
    async with serve(settings) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        file = await write(files, "file")
        before = (await file.get_file_properties()).etag

        moved = await file.rename_file("data/moved")

        assert ((await moved.get_file_properties()).etag == before) is (etag == "kept")

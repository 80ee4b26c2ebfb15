"""Creating, writing, reading, describing and deleting paths, as the official client does."""

from __future__ import annotations

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import BlobClient
from azure.storage.filedatalake import ContentSettings
from azure.storage.filedatalake.aio import FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator, Settings, serve

from .clients import client, names, read, refused, write


async def test_a_file_is_created_with_its_parents_and_empty(files: FileSystemClient) -> None:
    file = await files.create_file("a/b/file", metadata={"k": "v ü"})

    properties = await file.get_file_properties()
    assert (properties.size, properties.metadata) == (0, {"k": "v ü"})
    assert await names(files) == ["a", "a/b", "a/b/file"]


async def test_a_file_is_created_on_conditions_and_emptied_without_one(files: FileSystemClient) -> None:
    with refused(412, "ConditionNotMet"):
        await files.create_file("file", match_condition=MatchConditions.IfPresent)
    etag = (await (await write(files, "file", b"old")).get_file_properties()).etag
    with refused(409, "PathAlreadyExists"):
        await files.create_file("file", match_condition=MatchConditions.IfMissing)
    with refused(412, "ConditionNotMet"):
        await files.create_file("file", etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    for call in (files.create_file, files.create_directory):
        with refused(409, "InvalidDestinationPath"):
            await call("file/below")
    assert await read(files, "file") == b"old"

    await files.create_file("file", etag=etag, match_condition=MatchConditions.IfNotModified)
    assert await read(files, "file") == b""


async def test_a_directory_that_exists_keeps_what_it_holds(files: FileSystemClient) -> None:
    await write(files, "a/file")

    await files.create_directory("a", metadata={"k": "v"})

    assert await names(files) == ["a", "a/file"]
    assert (await files.get_directory_client("a").get_directory_properties()).metadata == {
        "hdi_isfolder": "true",
        "k": "v",
    }
    with refused(409, "PathAlreadyExists"):
        await files.create_directory("a", match_condition=MatchConditions.IfMissing)


@pytest.mark.parametrize("code", ["PathAlreadyExists", "ResourceTypeMismatch", "PathConflict"])
async def test_the_code_for_the_other_kind_is_a_switch(code: str) -> None:
    settings = Settings(type_change_code=code)  # type: ignore[arg-type]
    async with serve(settings) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        await write(files, "file")
        await files.create_directory("directory")

        with refused(409, code):
            await files.create_directory("file")
        with refused(409, code):
            await files.create_file("directory")


async def test_names_the_account_cannot_hold_are_refused(files: FileSystemClient) -> None:
    with refused(400, "InvalidResourceName"):
        await files.create_directory("a./b")
    async with serve(Settings(trailing_period="kept")) as emulator, client(emulator) as service:
        lenient = await service.create_file_system("data")
        await lenient.create_directory("a./b")
        assert await names(lenient) == ["a.", "a./b"]


# --- Writing ------------------------------------------------------------------------------------------------------


async def test_parts_may_come_in_any_order_and_are_seen_once_flushed(files: FileSystemClient) -> None:
    file = await files.create_file("file")
    await file.append_data(b"world", 6)
    with refused(400, "InvalidFlushPosition"):
        await file.flush_data(11)
    await file.append_data(b"hello ", 0)
    with refused(412, "ConditionNotMet"):
        await file.flush_data(11, etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    assert await read(files, "file") == b""
    await file.flush_data(11)
    assert await read(files, "file") == b"hello world"


@pytest.mark.parametrize("position", [0, 4, 6])
async def test_a_flush_to_the_wrong_length_is_refused_and_changes_nothing(
    files: FileSystemClient, position: int
) -> None:
    file = await files.create_file("file")
    await file.append_data(b"hello", 0)

    with refused(400, "InvalidFlushPosition"):
        await file.flush_data(position)
    assert await read(files, "file") == b""


async def test_what_is_flushed_is_not_written_over(files: FileSystemClient) -> None:
    file = await write(files, "file", b"hello")

    with refused(400, "InvalidQueryParameterValue"):
        await file.append_data(b"J", 0)
    await file.append_data(b"!", 5, flush=True)

    assert await read(files, "file") == b"hello!"


async def test_a_damaged_body_is_refused(files: FileSystemClient) -> None:
    file = await files.create_file("file")

    await file.append_data(b"hello", 0, validate_content="md5")
    with refused(400, "Md5Mismatch"):
        await file.append_data(b"hello", 5, headers={"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="})


async def test_nothing_is_appended_to_what_is_not_there_or_a_directory(files: FileSystemClient) -> None:
    await files.create_directory("directory")

    with refused(404, "PathNotFound"):
        await files.get_file_client("nothing").append_data(b"1", 0)
    with refused(404, "PathNotFound"):
        await files.get_file_client("nothing").flush_data(0)
    with refused(409, "ResourceTypeMismatch"):
        await files.get_file_client("directory").append_data(b"1", 0)


async def test_a_large_upload_in_several_parts_arrives(files: FileSystemClient) -> None:
    data = bytes(range(256)) * 4096 * 4

    await files.get_file_client("file").upload_data(data, overwrite=True, chunk_size=1024 * 1024, max_concurrency=3)

    assert await read(files, "file") == data


# --- Reading ------------------------------------------------------------------------------------------------------


async def test_a_range_is_read(files: FileSystemClient) -> None:
    file = await write(files, "file", b"0123456789")

    assert await (await file.download_file(offset=2, length=3)).readall() == b"234"
    assert await (await file.download_file(offset=7)).readall() == b"789"
    with refused(416, "InvalidRange"):
        await file.download_file(offset=10, length=5)


async def test_a_read_checks_the_etag(files: FileSystemClient) -> None:
    file = await write(files, "file")
    etag = (await file.get_file_properties()).etag

    await file.download_file(etag=etag, match_condition=MatchConditions.IfNotModified)
    with refused(412, "ConditionNotMet"):
        await file.download_file(etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    with pytest.raises(HttpResponseError) as caught:
        await file.get_file_properties(etag=etag, match_condition=MatchConditions.IfModified)
    assert caught.value.status_code == 304


async def test_what_is_missing_is_not_read(files: FileSystemClient) -> None:
    file = files.get_file_client("nothing")

    with refused(404, "BlobNotFound"):
        await file.download_file()
    with pytest.raises(ResourceNotFoundError):
        await file.get_file_properties()
    assert not await file.exists()


async def test_directories_and_files_are_told_apart(files: FileSystemClient) -> None:
    file = await write(files, "directory/file", b"12345")
    directory = files.get_directory_client("directory")

    about_file, about_directory = await file.get_file_properties(), await directory.get_directory_properties()

    assert about_file.size == 5
    assert about_directory.metadata == {"hdi_isfolder": "true"}
    assert (about_file.permissions, about_directory.permissions) == ("rw-r-----", "rwxr-x---")
    assert about_file.owner == about_directory.group == "$superuser"
    assert await directory.exists()


async def test_content_settings_are_kept(files: FileSystemClient) -> None:
    file = await files.create_file(
        "file", content_settings=ContentSettings(content_type="text/csv", content_language="de")
    )
    assert (await file.get_file_properties()).content_settings.content_type == "text/csv"

    await file.set_http_headers(ContentSettings(content_type="text/plain", cache_control="no-cache"))

    settings = (await file.get_file_properties()).content_settings
    assert (settings.content_type, settings.content_language, settings.cache_control) == (
        "text/plain",
        None,
        "no-cache",
    )


async def test_metadata_is_replaced_and_changes_the_etag(files: FileSystemClient) -> None:
    file = await files.create_file("file", metadata={"old": "1"})
    before = (await file.get_file_properties()).etag

    await file.set_metadata({"new": "2"})

    after = await file.get_file_properties()
    assert (after.metadata, after.etag == before) == ({"new": "2"}, False)
    with pytest.raises(ResourceNotFoundError):
        await files.get_file_client("nothing").set_metadata({})
    with refused(412, "ConditionNotMet"):
        await file.set_metadata({}, etag='"0x1"', match_condition=MatchConditions.IfNotModified)


# --- Deleting -----------------------------------------------------------------------------------------------------


async def test_a_file_is_deleted_once(files: FileSystemClient) -> None:
    file = await write(files, "a/file")

    with refused(412, "ConditionNotMet"):
        await file.delete_file(etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    await file.delete_file()

    assert await names(files) == ["a"]
    with refused(404, "PathNotFound"):
        await file.delete_file()


async def test_a_directory_is_deleted_with_all_it_holds(files: FileSystemClient) -> None:
    await write(files, "a/b/file")
    await write(files, "other")

    await files.delete_directory("a")

    assert await names(files) == ["other"]
    with refused(404, "PathNotFound"):
        await files.delete_directory("a")


async def test_a_full_directory_is_not_deleted_as_if_it_were_empty(
    files: FileSystemClient, emulator: AdlsEmulator
) -> None:
    await write(files, "a/file")

    with refused(409, "DirectoryNotEmpty"):
        await files.get_file_client("a").delete_file()
    async with BlobClient(emulator.url, "data", "a", credential=emulator.settings.key, retry_total=0) as blob:
        with refused(409, "DirectoryIsNotEmpty"):
            await blob.delete_blob()
    assert await names(files) == ["a", "a/file"]

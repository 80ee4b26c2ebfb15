"""Filesystems, leases and access control, as the official client uses them."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.filedatalake.aio import DataLakeLeaseClient, DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator
from committer_testing.emulators.adls.settings import Settings

from .clients import names, refused, write

OTHER = "00000000-0000-0000-0000-000000000001"


async def test_a_filesystem_is_created_once(service: DataLakeServiceClient) -> None:
    files = await service.create_file_system("data", metadata={"k": "v"})
    assert (await files.get_file_system_properties()).metadata == {"k": "v"}
    await files.set_file_system_metadata({"new": "2"})
    assert (await files.get_file_system_properties()).metadata == {"new": "2"}
    with refused(409, "ContainerAlreadyExists"):
        await service.create_file_system("data")
    for name in ("UPPER", "a", "two--hyphens"):
        with refused(400, "InvalidResourceName"):
            await service.create_file_system(name)


async def test_filesystems_are_listed(service: DataLakeServiceClient) -> None:
    for name in ("one", "two", "three"):
        await service.create_file_system(name, metadata={"k": name})

    found = [one async for one in service.list_file_systems(include_metadata=True)]
    assert [(one.name, one.metadata["k"]) for one in found] == [("one", "one"), ("three", "three"), ("two", "two")]
    assert [one.name async for one in service.list_file_systems(name_starts_with="t", results_per_page=1)] == [
        "three",
        "two",
    ]


async def test_a_filesystem_is_deleted_with_all_it_holds(
    service: DataLakeServiceClient, files: FileSystemClient
) -> None:
    await write(files, "file")

    await files.delete_file_system()

    assert not await files.exists()
    with pytest.raises(ResourceNotFoundError):
        await files.delete_file_system()
    with refused(404, "FilesystemNotFound"):
        await names(files)
    with refused(404, "FilesystemNotFound"):
        await files.get_file_client("file").delete_file()


# --- Leases -------------------------------------------------------------------------------------------------------


async def test_one_holds_a_lease_at_a_time(files: FileSystemClient) -> None:
    file = await write(files, "file")
    lease = await file.acquire_lease()

    with refused(409, "LeaseAlreadyPresent"):
        await file.acquire_lease()
    assert (await file.get_file_properties()).lease.state == "leased"
    await lease.renew()
    late = DataLakeLeaseClient(file, lease_id=lease.id)
    await lease.release()

    assert (await file.get_file_properties()).lease.state == "available"
    with refused(409, "LeaseNotPresentWithLeaseOperation"):
        await late.release()


async def test_a_lease_is_changed_and_broken(files: FileSystemClient) -> None:
    file = await write(files, "file")
    lease = await file.acquire_lease()
    await lease.change(OTHER)
    assert lease.id == OTHER

    assert await lease.break_lease() == 0

    assert (await file.get_file_properties()).lease.state == "broken"
    with refused(409, "LeaseIsAlreadyBroken"):
        await lease.break_lease()
    with refused(409, "LeaseIsBrokenAndCannotBeRenewed"):
        await lease.renew()
    await file.acquire_lease()


async def test_a_lease_that_is_breaking_still_keeps_others_out(files: FileSystemClient) -> None:
    file = await write(files, "file")
    lease = await file.acquire_lease(lease_duration=60)

    assert await lease.break_lease(lease_break_period=30) == 30

    with refused(409, "LeaseAlreadyPresent"):
        await file.acquire_lease()
    with refused(409, "LeaseIsBreakingAndCannotBeAcquired"):
        await file.acquire_lease(lease_id=lease.id)
    with refused(412, "LeaseIdMissing"):
        await file.delete_file()


async def test_writes_need_the_lease_that_is_there(files: FileSystemClient) -> None:
    file = await write(files, "file")
    with refused(412, "LeaseNotPresent"):
        await file.delete_file(lease=OTHER)
    lease = await file.acquire_lease()

    for write_without in (
        lambda: file.append_data(b"!", 4),
        lambda: file.flush_data(4),
        lambda: file.set_metadata({}),
        lambda: file.delete_file(),
    ):
        with refused(412, "LeaseIdMissing"):
            await write_without()
    with pytest.raises(HttpResponseError) as caught:
        await file.delete_file(lease=OTHER)
    assert caught.value.status_code == 412

    await file.append_data(b"!", 4, lease=lease)
    await file.flush_data(5, lease=lease)
    await file.set_metadata({"k": "v"}, lease=lease)
    await file.delete_file(lease=lease)


@pytest.mark.parametrize("duration", [1, 61])
async def test_a_lease_lasts_15_to_60_seconds_or_for_ever(files: FileSystemClient, duration: int) -> None:
    file = await write(files, "file")

    with refused(400, "InvalidHeaderValue"):
        await file.acquire_lease(lease_duration=duration)


async def test_a_filesystem_can_be_leased(files: FileSystemClient) -> None:
    lease = await files.acquire_lease()

    with refused(412, "LeaseIdMissing"):
        await files.delete_file_system()
    await files.delete_file_system(lease=lease)


# --- Access control -----------------------------------------------------------------------------------------------


async def test_new_paths_have_the_mode_less_the_umask(files: FileSystemClient) -> None:
    await files.create_directory("plain")
    await files.create_directory("open", permissions="0777", umask="0000")
    await files.create_directory("sticky", permissions="1777", umask="0022")
    await files.create_file("file", permissions="rwxrwxrwx", umask="0057")

    found = {entry.name: entry.permissions async for entry in files.get_paths()}

    assert found == {"file": "rwx-w----", "open": "rwxrwxrwx", "plain": "rwxr-x---", "sticky": "rwxr-xr-t"}


async def test_owner_mode_and_list_are_set_and_told(files: FileSystemClient) -> None:
    file = await write(files, "file")

    await file.set_access_control(owner="me", group="us", permissions="0640")
    told = await file.get_access_control()
    assert (told["owner"], told["group"], told["permissions"], told["acl"]) == (
        "me",
        "us",
        "rw-r-----",
        "user::rw-,group::r--,other::---",
    )

    await file.set_access_control(acl="user::rwx,user:guest:r--,group::r-x,mask::r-x,other::---")
    told = await file.get_access_control()
    assert (told["permissions"], told["acl"]) == (
        "rwxr-x---+",
        "user::rwx,user:guest:r--,group::r-x,mask::r-x,other::---",
    )


@pytest.mark.parametrize("acl", ["nonsense", "user::rwx", "user::rwx,group::rwz,other::---"])
async def test_a_list_that_makes_no_sense_is_refused(files: FileSystemClient, acl: str) -> None:
    file = await write(files, "file")

    with refused(400, "InvalidHeaderValue"):
        await file.set_access_control(acl=acl)
    with refused(404, "PathNotFound"):
        await files.get_file_client("nothing").set_access_control(permissions="0600")


async def test_lists_are_changed_for_a_whole_tree(files: FileSystemClient) -> None:
    await write(files, "a/b/file")
    directory = files.get_directory_client("a")

    done = await directory.set_access_control_recursive("user::rwx,group::r-x,other::r-x", batch_size=2)
    assert (done.counters.directories_successful, done.counters.files_successful) == (2, 1)
    await directory.update_access_control_recursive("user:guest:rwx,mask::rwx")
    file = files.get_file_client("a/b/file")
    assert (await file.get_access_control())["acl"] == "user::rwx,group::r-x,other::r-x,user:guest:rwx,mask::rwx"
    await directory.remove_access_control_recursive("user:guest,mask")

    assert {entry.permissions async for entry in files.get_paths()} == {"rwxr-xr-x"}


def test_no_secret_is_in_a_repr(emulator: AdlsEmulator) -> None:
    settings = Settings(key="c2VjcmV0", bearer_tokens=frozenset({"a.b.c"}))

    assert "c2VjcmV0" not in repr(settings)
    assert "a.b.c" not in repr(settings)
    assert emulator.settings.key not in repr(emulator)

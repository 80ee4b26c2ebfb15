"""Hadoop's own ABFS client on the emulated account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.storage.filedatalake.aio import DataLakeServiceClient

from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from tests.interop.hadoop import JavaError, in_java
from tests.interop.jvm import Jvm

from .clients import client, names, read
from .hadoop_azure import Abfs, ManifestJob

pytestmark = pytest.mark.java


async def thrown(call: Callable[[], Any]) -> str:
    """The class of what a call to Java throws."""
    with pytest.raises(JavaError) as caught:
        await in_java(call)
    return caught.value.kind


async def test_it_reads_what_it_wrote_and_so_does_the_official_client(
    abfs: Abfs, service: DataLakeServiceClient
) -> None:
    await abfs.write("/a/b/file ä", b"hello" * 100_000)

    assert await abfs.read("/a/b/file ä") == b"hello" * 100_000
    assert await read(service.get_file_system_client("data"), "a/b/file ä") == b"hello" * 100_000
    assert await abfs.names("/a") == ["b"]


async def test_it_recognises_both_kinds_of_account(jvm: Jvm) -> None:
    for hierarchical in (True, False):
        async with serve(Settings(hierarchical=hierarchical)) as emulator:
            abfs = Abfs(jvm, emulator, "data")
            abfs.conf.unset("fs.azure.account.hns.enabled")
            await abfs.open()
            told = await in_java(
                lambda abfs=abfs: abfs.filesystem.hasPathCapability(
                    abfs.path("/"), "fs.capability.etags.preserved.in.rename"
                )
            )
            assert told is hierarchical
            await abfs.close()


async def test_an_existing_file_is_replaced_only_if_it_may_be(abfs: Abfs) -> None:
    await abfs.write("/file", b"1")

    with pytest.raises(JavaError, match="FileAlreadyExists"):
        await abfs.write("/file", b"2", overwrite=False)
    await abfs.write("/file", b"3")

    assert await abfs.read("/file") == b"3"


async def test_renames_mean_what_hadoop_means_by_them(abfs: Abfs) -> None:
    await abfs.write("/a/file", b"1")
    await abfs.write("/other", b"2")

    assert await abfs.rename("/a/file", "/moved")
    assert not await abfs.rename("/nothing", "/x")
    assert not await abfs.rename("/moved", "/other")
    assert not await abfs.rename("/moved", "/no/such/parent/file")
    assert await abfs.rename("/moved", "/a/moved")
    assert await abfs.read("/a/moved") == b"1"
    assert await abfs.rename("/a", "/b")
    assert await abfs.names("/b") == ["moved"]


async def test_etags_are_told_and_survive_a_rename(abfs: Abfs) -> None:
    await abfs.write("/file", b"1")

    async def etag(path: str) -> str:
        return await in_java(lambda: str(abfs.filesystem.getFileStatus(abfs.path(path)).getEtag()))

    before = await etag("/file")
    assert before.startswith("0x")
    assert await in_java(lambda: [str(one.getEtag()) for one in abfs.filesystem.listStatus(abfs.path("/"))]) == [before]
    await abfs.rename("/file", "/moved")

    assert await etag("/moved") == before


async def test_a_tree_is_deleted_and_listed_by_continuation(jvm: Jvm) -> None:
    async with serve(Settings(delete_page=7, list_page=5)) as emulator, client(emulator) as service:
        files = await service.create_file_system("data")
        for number in range(30):
            await files.create_file(f"a/{number % 3}/{number}")
        abfs = await Abfs(jvm, emulator, "data").open()

        assert len(await abfs.names("/a/0")) == 10
        assert await in_java(lambda: abfs.filesystem.delete(abfs.path("/a"), True))

        assert await names(files) == []
        assert not await in_java(lambda: abfs.filesystem.delete(abfs.path("/a"), True))
        await abfs.close()


async def test_a_full_directory_is_not_deleted_by_mistake(abfs: Abfs) -> None:
    await abfs.write("/a/file", b"1")

    assert await thrown(lambda: abfs.filesystem.delete(abfs.path("/a"), False)) == "FileAlreadyExistsException"
    assert await thrown(lambda: abfs.filesystem.getFileStatus(abfs.path("/b"))) == "FileNotFoundException"
    assert await thrown(lambda: abfs.filesystem.listStatus(abfs.path("/b"))) == "FileNotFoundException"


async def test_appends_and_flushes_are_seen(abfs: Abfs) -> None:
    await abfs.write("/file", b"1")

    def append() -> None:
        stream = abfs.filesystem.append(abfs.path("/file"))
        stream.write(b"2")
        stream.hsync()
        stream.write(b"3")
        stream.close()

    await in_java(append)

    assert await abfs.read("/file") == b"123"


async def test_permissions_and_attributes_are_kept(abfs: Abfs, jvm: Jvm) -> None:
    await abfs.write("/file", b"1")

    def change() -> tuple[str, bytes]:
        at = abfs.path("/file")
        abfs.filesystem.setPermission(at, jvm.view.org.apache.hadoop.fs.permission.FsPermission("751"))
        abfs.filesystem.setXAttr(at, "user.colour", b"red")
        permission = str(abfs.filesystem.getFileStatus(at).getPermission())
        return permission, bytes(abfs.filesystem.getXAttr(at, "user.colour"))

    assert await in_java(change) == ("rwxr-x--x", b"red")


async def test_a_wrong_key_is_refused(jvm: Jvm, emulator: AdlsEmulator) -> None:
    abfs = Abfs(jvm, emulator, "data")
    await in_java(lambda: abfs.conf.set("fs.azure.account.key.devstoreaccount1.dfs.core.windows.net", "d3Jvbmc="))

    with pytest.raises(JavaError, match="AuthenticationFailed"):
        await abfs.open()


async def test_it_waits_when_it_is_told_to_and_goes_on(abfs: Abfs, emulator: AdlsEmulator) -> None:
    emulator.conduct.faults.append(Fault(kind="error", status=503, code="ServerBusy", operation="rename", count=1))
    await abfs.write("/file", b"1")

    assert await abfs.rename("/file", "/moved")

    assert [entry.status for entry in emulator.conduct.log if entry.operation == "rename"] == [503, 201]


async def test_a_lost_response_of_a_rename_is_recovered_by_etag(abfs: Abfs, emulator: AdlsEmulator) -> None:
    await abfs.write("/file", b"1")
    # Java's own HTTP client repeats a request once when a connection it kept is dropped, and its user learns nothing of
    # that; the second drop is what Hadoop sees.
    emulator.conduct.faults += [
        Fault(kind="reset-after", operation="rename", count=1),
        Fault(kind="reset", operation="rename", skip=1, count=1),
    ]

    def commit() -> bool:
        source, target = abfs.path("/file"), abfs.path("/moved")
        etag = abfs.filesystem.getFileStatus(source).getEtag()
        support = abfs.filesystem.createResilientCommitSupport(source)
        return bool(support.commitSingleFileByRename(source, target, etag).getLeft())

    # Whether it was recovered.
    assert await in_java(commit)

    assert [entry.status for entry in emulator.conduct.log if entry.operation == "rename"] == [0, 0, 404]
    assert await abfs.read("/moved") == b"1"


# --- Its manifest committer ---------------------------------------------------------------------------------------


async def test_its_manifest_committer_commits_a_job(jvm: Jvm, abfs: Abfs, service: DataLakeServiceClient) -> None:
    job = ManifestJob(jvm, abfs)
    await job.setup()
    await job.run_task(0, dict.fromkeys(("a=1/part-0", "a=2/part-0"), b"data"))
    assert (await job.commit())["committer_files_committed"] == 2

    found = await names(service.get_file_system_client("data"), "table")
    assert found == [
        "table/_SUCCESS",
        "table/a=1",
        "table/a=1/part-0",
        "table/a=2",
        "table/a=2/part-0",
    ]
    assert b"ManifestCommitter" in await abfs.read("/table/_SUCCESS")

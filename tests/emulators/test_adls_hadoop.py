"""Hadoop's own ABFS client on the emulated account."""

from __future__ import annotations

import pytest

from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from tests.interop.hadoop import in_java
from tests.interop.jvm import Jvm

from .clients import client, names
from .hadoop_azure import Abfs

pytestmark = pytest.mark.java


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

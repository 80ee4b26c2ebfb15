"""Google's connector for Hadoop on the emulator, and Hadoop's manifest committer over it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from committer_testing.emulators.gcs import Fault, GcsEmulator
from tests.interop.hadoop import JavaError
from tests.interop.jvm import Jvm

from .hadoop_google import Gcs

pytestmark = pytest.mark.java


@pytest.fixture
async def connector(google_jvm: Jvm, gcs: GcsEmulator) -> AsyncIterator[Gcs]:
    """On the bucket `data`."""
    connector = await Gcs(google_jvm, gcs, "data").open()
    yield connector
    await connector.close()


def operations(gcs: GcsEmulator, name: str) -> list[int]:
    return [entry.status for entry in gcs.conduct.log if entry.operation == name]


async def test_it_reads_what_it_wrote(connector: Gcs, gcs: GcsEmulator) -> None:
    await connector.write("/a/b/file ä #?%41", b"hello" * 100_000)

    assert await connector.read("/a/b/file ä #?%41") == b"hello" * 100_000
    assert gcs.namespace.buckets["data"].objects["a/b/file ä #?%41"].data == b"hello" * 100_000
    assert await connector.names("/a") == ["b"]
    with pytest.raises(JavaError, match="already exists"):
        await connector.write("/a/b/file ä #?%41", b"", overwrite=False)


async def test_it_renames_by_moves(connector: Gcs, gcs: GcsEmulator) -> None:
    await connector.write("/a/1", b"1")
    await connector.write("/a/2", b"2")

    assert await connector.rename("/a/1", "/a/3")
    assert not await connector.rename("/a/2", "/a/3")
    assert await connector.rename("/a", "/b")

    assert (await connector.names("/b"), await connector.read("/b/3")) == (["2", "3"], b"1")
    assert set(operations(gcs, "move")) == {200}
    assert not operations(gcs, "rewrite")


async def test_without_moves_it_copies_and_deletes(google_jvm: Jvm, gcs: GcsEmulator) -> None:
    connector = await Gcs(google_jvm, gcs, "data", **{"fs.gs.operation.move.enable": "false"}).open()
    await connector.write("/a", b"1")

    assert await connector.rename("/a", "/b")

    assert (operations(gcs, "move"), operations(gcs, "rewrite")) == ([], [200])
    assert await connector.names("/") == ["b"]
    await connector.close()


async def test_it_tries_again_when_the_service_is_busy(connector: Gcs, gcs: GcsEmulator) -> None:
    await connector.write("/a", b"1")
    gcs.conduct.faults.append(Fault("error", operation="move", status=503, count=1))

    assert await connector.rename("/a", "/b")

    assert operations(gcs, "move") == [503, 200]
    assert await connector.names("/") == ["b"]

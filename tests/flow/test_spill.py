"""Lists and duplicate search beyond memory: what goes in comes out, counted, in order, and nothing is left on disk."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import CommitterError, RecordError
from committer.flow.spill import SpillFile
from committer.records.manifest import FileEntry

pytestmark = pytest.mark.every_loop

T = TypeVar("T")


def entry(number: int) -> FileEntry:
    return FileEntry(f"file:/tmp/source/part-{number:08d}", f"file:/data/dest/part-{number:08d}", number, None)


async def fill(spill: SpillFile[T], items: Iterable[T]) -> None:
    for item in items:
        await spill.append(item)


# --- The list -----------------------------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(0, 10**9), max_size=200), block=st.sampled_from([1, 50, 500, 1 << 20]))
async def test_what_goes_in_comes_out_in_order(numbers: list[int], block: int) -> None:
    async with SpillFile(FileEntry, block_bytes=block) as spill:
        await fill(spill, map(entry, numbers))
        assert spill.count == len(numbers)
        for _ in range(2):
            assert [item async for item in spill.read()] == [entry(number) for number in numbers]


async def test_a_short_list_never_touches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "not there"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    async with SpillFile(FileEntry) as spill:
        await fill(spill, map(entry, range(100)))
        assert len(spill._blocks) == 0
        assert [item.z async for item in spill.read()] == list(range(100))


async def test_an_empty_list() -> None:
    async with SpillFile(FileEntry) as spill:
        assert [item async for item in spill.read()] == []


async def test_memory_stays_at_a_block() -> None:
    async with SpillFile(FileEntry, block_bytes=1 << 16) as spill:
        tracemalloc.start()
        try:
            await fill(spill, map(entry, range(20_000)))
            seen = 0
            async for item in spill.read():
                assert item.z == seen
                seen += 1
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert seen == 20_000
        assert len(spill._blocks) >= 20
        # Kept, the entries would take ten megabytes; a block of decoded ones is a few times its bytes.
        assert most < 2 << 20


async def test_many_writers_at_once_lose_nothing() -> None:
    async with SpillFile(int, block_bytes=64) as spill:

        async def write(start: int) -> None:
            for number in range(start, start + 50):
                await spill.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(write(start) for start in range(0, 1000, 50)))
        items = [item async for item in spill.read()]
    assert sorted(items) == list(range(1000))
    # Each writer's own items kept their order.
    for start in range(0, 1000, 50):
        assert [item for item in items if start <= item < start + 50] == list(range(start, start + 50))


async def test_one_block_is_on_its_way_however_many_append(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SpillFile(int, block_bytes=64) as spill:
        write_block, on_their_way, most = spill._write_block, 0, 0

        async def counted() -> None:
            nonlocal on_their_way, most
            on_their_way += 1
            most = max(most, on_their_way)
            await write_block()
            on_their_way -= 1

        monkeypatch.setattr(spill, "_write_block", counted)

        async def write() -> None:
            for number in range(50):
                await spill.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(write() for _ in range(50)))
        assert most == 1
        assert len(spill._blocks) > 10


async def test_a_writer_that_is_cancelled_before_its_block_goes_loses_the_list() -> None:
    async with SpillFile(int, block_bytes=64) as spill:
        async with spill._disk:
            task = asyncio.create_task(fill(spill, range(1000)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(CommitterError, match="temporary file"):
            await spill.append(1)


async def test_two_readers_do_not_disturb_each_other() -> None:
    async with SpillFile(int, block_bytes=100) as spill:
        await fill(spill, range(1000))

        async def read() -> list[int]:
            return [item async for item in spill.read()]

        first, second = await asyncio.gather(read(), read())
        assert first == second == list(range(1000))


async def test_files_have_no_name_and_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with SpillFile(int, block_bytes=100) as spill:
        await fill(spill, range(1000))
        assert len(spill._blocks) > 0
        assert list(tmp_path.iterdir()) == []
    await spill.close()
    with pytest.raises(ValueError, match="closed"):
        await spill.append(1)
    with pytest.raises(ValueError, match="closed"):
        _ = [item async for item in spill.read()]
    if descriptors is not None:
        assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_closing_after_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="user"):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        async with SpillFile(int, block_bytes=100) as spill:
            await fill(spill, range(1000))
            raise RuntimeError("the user's own")
    gc.collect()
    assert list(tmp_path.iterdir()) == []


async def test_a_disk_that_takes_nothing_is_told_and_the_list_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "not there"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    async with SpillFile(int, block_bytes=10) as spill:
        with pytest.raises(CommitterError, match="temporary file") as caught:
            await fill(spill, range(1000))
        assert caught.value.operation == "spill"
        assert caught.value.outcome == "unchanged"
        assert "TMPDIR" in caught.value.next_step
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        for use in (spill.append(1), anext(spill.read())):
            with pytest.raises(CommitterError, match="temporary file"):
                await use


async def test_a_file_that_lost_its_end_is_never_taken_for_whole() -> None:
    async with SpillFile(int, block_bytes=1000) as spill:
        await fill(spill, range(5000))
        assert spill._file is not None
        os.truncate(spill._file.fileno(), spill._size - 10)
        with pytest.raises(RecordError, match="temporary file"):
            _ = [item async for item in spill.read()]


async def test_cancelling_waits_for_the_thread_and_loses_the_list() -> None:
    async with SpillFile(int, block_bytes=1 << 20) as spill:
        entered, let_go = threading.Event(), threading.Event()
        write = spill._write

        def slow(data: bytearray, offset: int) -> None:
            entered.set()
            let_go.wait(10)
            write(data, offset)

        spill._write = slow  # type: ignore[method-assign]
        task = asyncio.create_task(fill(spill, range(10**6)))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(CommitterError):
            await spill.append(1)

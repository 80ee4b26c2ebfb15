"""Items by number on the driver's disk: given back in their turn, or not at all; nothing about them ever fails."""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from committer.flow import spill
from committer.flow.spill import NumberedSpill, SpillReader

MOST = 1 << 20


async def fill(kept: NumberedSpill[str], numbers: Iterable[int], weight: int = 1) -> None:
    for number in numbers:
        await kept.add(number, f"item {number}", weight=weight)


async def take_all(reader: SpillReader[str], count: int, run: int) -> list[dict[int, str]]:
    return [await reader.take(range(first, min(count, first + run))) for first in range(0, count, run)]


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
@pytest.mark.parametrize("run", [1, 7, 100])
async def test_items_come_in_their_turn_as_often_as_wanted(block_bytes: int, run: int) -> None:
    numbers = sorted(range(100), key=lambda number: number + random.Random(number).random() * 20)
    async with NumberedSpill[str](str, most_bytes=MOST, block_bytes=block_bytes) as kept:
        await fill(kept, numbers)
        for _ in range(2):
            runs = await take_all(kept.in_turn(), 100, run)
            assert {number: text for found in runs for number, text in found.items()} == {
                number: f"item {number}" for number in range(100)
            }
            assert [min(found) for found in runs] == list(range(0, 100, run))


async def test_what_comes_long_after_its_turn_is_not_found_and_little_waits_for_it() -> None:
    async with NumberedSpill[str](str, most_bytes=MOST, block_bytes=50) as kept:
        await fill(kept, [*range(1, 100), 0])
        reader = kept.in_turn(most_ahead=10)
        runs = await take_all(reader, 100, 5)
        assert sorted(number for found in runs for number in found) == list(range(1, 100))
        assert await reader.take(range(100, 105)) == {}


async def test_no_more_than_the_disk_may_hold() -> None:
    async with NumberedSpill[str](str, most_bytes=200, block_bytes=50) as kept:
        await fill(kept, range(100))
        assert not kept.takes_more
        found = await kept.in_turn().take(range(100))
        assert list(found) == list(range(len(found)))
        assert 5 < len(found) < 50


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
async def test_a_full_disk_ends_it_and_warns(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(**_arguments: Any) -> Any:
        return open("/dev/full", "r+b", buffering=0)

    monkeypatch.setattr(spill, "tempfile", SimpleNamespace(TemporaryFile=full, gettempdir=lambda: "/full"))
    async with NumberedSpill[str](str, most_bytes=MOST, block_bytes=50) as kept:
        with caplog.at_level(logging.WARNING):
            await fill(kept, range(100))
        assert not kept.takes_more
        assert await kept.in_turn().take(range(100)) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text


async def test_closed_while_it_is_read_and_added_to() -> None:
    kept = NumberedSpill[str](str, most_bytes=MOST, block_bytes=50)
    await fill(kept, range(20))
    await kept.close()
    await kept.close()
    await fill(kept, range(20, 30))
    assert await kept.in_turn().take(range(30)) == {}


async def test_a_machine_without_a_directory_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(**_arguments: Any) -> Any:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(spill, "tempfile", SimpleNamespace(TemporaryFile=none, gettempdir=none))
    async with NumberedSpill[str](str, most_bytes=MOST, block_bytes=1) as kept:
        with caplog.at_level(logging.WARNING):
            await fill(kept, range(3))
        assert not kept.takes_more
    assert "No usable temporary directory found" in caplog.text


async def test_a_reader_ends_where_another_one_gives_the_file_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with NumberedSpill[str](str, most_bytes=MOST, block_bytes=50) as kept:
        await fill(kept, range(20))
        first, second = kept.in_turn(), kept.in_turn()
        assert await first.take(range(2)) == {0: "item 0", 1: "item 1"}
        monkeypatch.setattr(os, "pread", failing)
        assert await second.take(range(20)) == {}
        assert len(await first.take(range(2, 20))) < 18

"""Texts that were added twice are found, however many there are and wherever they lie."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import CommitterError
from committer.flow.texts import BLOCK, HashFilter, Repeats

pytestmark = pytest.mark.every_loop


def repeated(texts: list[str]) -> set[int]:
    return {hash(text) for text, times in Counter(texts).items() if times > 1}


@given(
    texts=st.lists(st.text(max_size=3) | st.sampled_from(["a", "b", "a\udc80"]), max_size=80),
    block=st.sampled_from([1, 3, 10, 1000]),
    at_once=st.sampled_from([1, 7, 100]),
)
async def test_exactly_the_texts_that_were_added_twice(texts: list[str], block: int, at_once: int) -> None:
    async with Repeats(block=block) as repeats:
        for start in range(0, len(texts), at_once):
            await repeats.add(texts[start : start + at_once])
        assert repeats.count == len(texts)
        assert bool(repeats._files) == (len(texts) >= block if at_once == 1 else bool(repeats._files))
        assert await repeats.find() == repeated(texts)


async def test_repeats_far_apart_among_300_000_texts() -> None:
    texts = [f"year=2026/part-{number:08d}" for number in range(300_000)]
    doubled = [texts[number * 997] for number in range(300)]
    async with Repeats() as repeats:
        for start in range(0, len(texts), 1000):
            await repeats.add(texts[start : start + 1000])
        await repeats.add(doubled)
        assert repeats._files
        assert await repeats.find() == set(map(hash, doubled))


async def test_few_texts_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    async with Repeats() as repeats:
        await repeats.add(str(number % (BLOCK - 2)) for number in range(BLOCK - 1))
        assert not repeats._files
        assert await repeats.find() == {hash("0")}


async def test_one_text_over_and_over() -> None:
    async with Repeats(block=10) as repeats:
        for _ in range(5000):
            await repeats.add(["the same"])
        assert await repeats.find() == {hash("the same")}


async def test_a_disk_that_takes_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    async with Repeats() as repeats:
        with pytest.raises(CommitterError, match="gone"):
            for start in range(0, 100 * BLOCK, BLOCK):
                await repeats.add(str(number) for number in range(start, start + BLOCK))


async def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Repeats(block=10) as repeats:
        await repeats.add(str(number) for number in range(100_000))
        assert list(tmp_path.iterdir()) == []
        assert await repeats.find() == set()
    await repeats.close()


@pytest.mark.parametrize("block", [1, 2, 100])
async def test_hashes_in_common(block: int) -> None:
    async with Repeats(block=block) as ours, Repeats() as others:
        await ours.add(["a", "b", "c"])
        await others.add(["c", "d"])
        await others.add(["a", "a"])
        assert await ours.common(others) == {hash("a"), hash("c")}
        assert await ours.lacking(others, most=9) == ({hash("d")}, 1)
        assert await others.lacking(ours, most=9) == ({hash("b")}, 1)
        await ours.add(["a"])
        assert await ours.find() == {hash("a")}
        assert block < BLOCK


async def test_many_hashes_in_common_are_a_filter() -> None:
    texts = [f"text {number}" for number in range(500)]
    async with Repeats(block=50) as ours, Repeats(block=50) as others:
        await ours.add(texts)
        await others.add([*texts[::2], "other"])
        found = await ours.common(others, kept=100)
        assert isinstance(found, HashFilter)
        assert all(hash(text) in found for text in texts[::2])
        assert len(found) == 250

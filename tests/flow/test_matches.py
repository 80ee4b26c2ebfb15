"""Texts that were noted are found again, with their values, in the order in which they are asked for."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from committer.errors import CommitterError
from committer.flow.texts import Asked, HashFilter, Matches


@pytest.mark.parametrize("block", [16, 1 << 15])
async def test_what_was_noted_is_told_in_turn(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("committer.flow.texts._BLOCK_BYTES", block)
    texts = [f"p={number % 7}/name-{number}" for number in range(1000)]
    noted = texts[::3]
    async with Matches[int](int) as found:
        for start in range(0, len(noted), 100):
            some = noted[start : start + 100]
            await found.note(some, [len(text) for text in some])
        assert found.count == len(noted)
        order = texts[:]
        random.Random(1).shuffle(order)
        for start in range(0, len(order), 100):
            await found.ask([Asked(start + at, text) for at, text in enumerate(order[start : start + 100])])
        told = [answer async for answer in found.answers()]
    wanted = set(noted)
    assert told == [(number, text, len(text)) for number, text in enumerate(order) if text in wanted]


async def test_a_text_is_told_by_its_other_name_and_the_last_value_counts() -> None:
    async with Matches[str](str) as found:
        await found.note(["a", "b", "a"], ["first", "b's", "last"])
        await found.ask([Asked(1, "a", "A"), Asked(4, "c", "C"), Asked(5, "b")])
        assert [answer async for answer in found.answers()] == [(1, "A", "last"), (5, "b", "b's")]


async def test_nothing_noted_or_asked_for_tells_nothing() -> None:
    async with Matches[bool](bool) as found:
        assert [answer async for answer in found.answers()] == []
    async with Matches[bool](bool) as found:
        await found.note(["a"], [True])
        assert [answer async for answer in found.answers()] == []
    async with Matches[bool](bool) as found:
        await found.ask([Asked(0, "a")])
        assert [answer async for answer in found.answers()] == []
        await found.close()
        await found.close()


async def test_a_text_that_is_not_utf_8_is_equal_to_none() -> None:
    odd = "odd-\udcff"
    async with Matches[bool](bool) as found:
        await found.note([odd, "é"], [True, True])
        await found.ask([Asked(0, odd), Asked(1, "é")])
        assert [answer async for answer in found.answers()] == [(1, "é", True)]


async def test_a_disk_without_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("committer.flow.texts._BLOCK_BYTES", 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    async with Matches[bool](bool) as found:
        with pytest.raises(CommitterError, match=r"a temporary file in .*gone failed"):
            await found.note(["text" * 10], [True])


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_a_filter_holds_all_that_was_added(most: int) -> None:
    numbers = [hash(f"text {number}") for number in range(most)]
    some = HashFilter(most)
    assert not some
    some.update(numbers)
    assert all(number in some for number in numbers)
    assert len(some) == most
    others = [hash(f"other {number}") for number in range(10_000)]
    assert sum(number in some for number in others) < len(others) // 4
    assert "text" not in some

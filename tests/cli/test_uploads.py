"""uploads list, expect, abort: what is said, what is done, and how a script learns of it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator

import pytest

from committer.cli.output import Screen
from committer.stores.memory import MemorySpace, MemoryStore
from tests.api.test_uploads import begin, pending, uri
from tests.cli.conftest import Lake, Run

_numbers = itertools.count()


@pytest.fixture
def space() -> Iterator[MemorySpace]:
    """Uploads of two files, one of them old, and one in a directory whose name goes on."""
    name = f"cli-uploads-{next(_numbers)}"
    space = MemoryStore.space(name, "s3")

    async def fill() -> None:
        await begin(space, "dataset1/old file", hours=50, parts=2)
        await begin(space, "dataset1/new", hours=1, parts=1)
        await begin(space, "dataset10/other", hours=50)

    asyncio.run(fill())
    yield space
    MemoryStore.forget(name)


def test_list(run: Run, space: MemorySpace) -> None:
    result = run("uploads", "list", uri(space, "dataset1"))
    assert result.code == 0
    assert "2 pending uploads below" in result.out
    for shown in ("old file", "2 d", "new", "1 h", "memory", "upload-1"):
        assert shown in result.out
    assert "other" not in result.out
    assert "parts" not in result.out
    sizes = run("uploads", "list", uri(space, "dataset1"), "--sizes", "--older-than", "1d")
    assert f"1 pending upload below {uri(space, 'dataset1')} older than 1 d 0 h, 30 B" in sizes.out
    assert "30 B" in sizes.out
    assert "new" not in sizes.out
    assert "and 1 more" in run("uploads", "list", uri(space, "dataset1"), "--limit", 1).out


def test_list_as_json(run: Run, space: MemorySpace) -> None:
    data = run("uploads", "list", uri(space, "dataset1"), "--sizes", "--output", "json").json
    assert (data["count"], data["size"]) == (2, 40)
    assert [(row["path"], row["parts"], row["size"]) for row in data["uploads"]] == [
        (f"{uri(space)}/dataset1/new", 1, 10),
        (f"{uri(space)}/dataset1/old file", 2, 30),
    ]
    assert all(row["initiated"].endswith("Z") or "+00:00" in row["initiated"] for row in data["uploads"])


def test_expect(run: Run, space: MemorySpace) -> None:
    assert run("uploads", "expect", uri(space, "dataset1"), 2).code == 0
    wrong = run("uploads", "expect", uri(space, "dataset1"), 0)
    assert wrong.code == 1
    assert "2 pending uploads" in wrong.out
    assert "0 expected" in wrong.out
    assert "old file" in wrong.out
    assert run("uploads", "expect", uri(space, "dataset1"), 1, "--older-than", "1d").code == 0
    data = run("uploads", "expect", uri(space, "nothing"), 1, "--output", "json")
    assert (data.code, data.json["ok"], data.json["count"]) == (1, False, 0)


def test_abort_says_first_what_it_will_do(run: Run, space: MemorySpace) -> None:
    before = pending(space)
    planned = run("uploads", "abort", uri(space, "dataset1"), "--older-than", "1d")
    assert planned.code == 2
    assert "old file (2 d old)" in planned.out
    assert "new" not in planned.out
    assert "--yes" in planned.err
    assert pending(space) == before
    done = run("uploads", "abort", uri(space, "dataset1"), "--older-than", "1d", "--yes")
    assert (done.code, "1 upload aborted" in done.out) == (0, True)
    assert pending(space) == ["dataset1/new", "dataset10/other"]
    everything = run("uploads", "abort", uri(space, "dataset1"), "--all", "--yes", "--output", "json")
    assert [row["path"] for row in everything.json["aborted"]] == [f"{uri(space)}/dataset1/new"]
    assert pending(space) == ["dataset10/other"]


def test_abort_takes_only_what_it_showed(run: Run, space: MemorySpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that begins while a person reads the question keeps its uploads."""

    class Reader:
        def readline(self) -> str:
            asyncio.run(begin(space, "dataset1/of a job that runs"))
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Reader())
    monkeypatch.setattr(Screen, "can_ask", True)
    assert run("uploads", "abort", uri(space, "dataset1"), "--all").code == 0
    assert pending(space) == ["dataset1/of a job that runs", "dataset10/other"]


@pytest.mark.parametrize("words", [(), ("--older-than", "1d", "--all")])
def test_abort_needs_an_age_or_all(run: Run, space: MemorySpace, words: tuple[str, ...]) -> None:
    before = pending(space)
    result = run("uploads", "abort", uri(space, "dataset1"), *words, "--yes")
    assert (result.code, "--older-than and --all" in result.err) == (2, True)
    assert pending(space) == before


def test_a_store_without_uploads(run: Run, lake: Lake) -> None:
    result = run("uploads", "list", lake.path)
    assert (result.code, "has no uploads" in result.err) == (2, True)

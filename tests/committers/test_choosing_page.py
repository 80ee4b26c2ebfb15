"""docs/choosing-a-committer.md and docs/guarantees.md answer for every committer, and name none that a store refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import committer
from committer.committers.registry import BUILT_IN, committer_for, default_committer
from committer.errors import UnsupportedError
from committer.stores.memory.store import PROFILES

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = ("local", "hdfs", "adls", "azure-flat", "gcs", "s3")


def _rows(page: str, first_cell: str) -> list[list[str]]:
    """The rows of the table whose heading begins with that cell."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def _named(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9-]+)`", cell)) & BUILT_IN.keys()


CELLS = [
    pytest.param(row[0], profile, cell, id=f"{row[0][:30]}-{profile}")
    for row in _rows("choosing-a-committer.md", "you need")
    for profile, cell in zip(COLUMNS, row[1:], strict=True)
]


@pytest.mark.parametrize(("need", "profile", "cell"), CELLS)
def test_every_committer_in_the_table_can_be_had_there(need: str, profile: str, cell: str) -> None:
    named = _named(cell)
    assert named or cell == "none", need
    for name in named:
        can = PROFILES[profile]
        assert all(getattr(can, ability) for ability in committer_for(name).needs), name


def test_the_defaults_are_those_of_the_stores() -> None:
    row = _rows("choosing-a-committer.md", "you need")[0]
    assert [_named(cell) for cell in row[1:]] == [{default_committer(PROFILES[profile])} for profile in COLUMNS]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_committer_has_a_need_and_a_row_of_guarantees(name: str) -> None:
    assert any(name in _named(cell) for row in _rows("choosing-a-committer.md", "you need") for cell in row[1:])
    (row,) = [row for row in _rows("guarantees.md", "committer") if name in _named(row[0])]
    assert len(row) == 15
    assert "unsafe" in row[0] if BUILT_IN[name].unsafe else "unsafe" not in row[0]
    assert not BUILT_IN[name].unsafe or "**no**" in row[6]


async def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="committer 'direct' is unknown") as caught:
        await committer.open_job(tmp_path / "table", committer="direct")
    assert all(name in caught.value.message for name in BUILT_IN)
    assert not (tmp_path / "table").exists()

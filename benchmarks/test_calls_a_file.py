"""Calls a file, in small: the whole table is made, and directories in one rename save what they are said to save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import calls_a_file


@pytest.mark.parametrize("store", [*calls_a_file.TOLD])
def test_calls_are_counted(store: str, tmp_path: Path) -> None:
    target = tmp_path / "kept.json"
    calls_a_file.main(["--shape", "20x10", "--stores", store, "--json", str(target)])
    kept = json.loads(target.read_text())
    [found] = kept["stores"]
    for delivery in calls_a_file.DELIVERIES:
        assert found[f"whole directories, by {delivery}"] < 0.7 * found[f"file by file, by {delivery}"]
    # By listing a record is read for each task.
    assert found["whole directories, by listing"] > found["whole directories, by message"]
    assert len({len(row) for row in calls_a_file.rows(kept)}) == 1


def test_hadoops_calls_are_those_that_were_counted() -> None:
    """1000 tasks of ten files in 100 directories, in `benchmarks/results/`; here each has a directory of its own."""
    results = Path(calls_a_file.__file__).parent / "results" / "compare-1000x10x100.json"
    sides = json.loads(results.read_text())["sides"]
    [counted] = [runs[0]["calls"] for side, runs in sides.items() if side.startswith("manifest")]
    assert calls_a_file.hadoops_calls(1000, 10) * 10_000 == sum(counted.values()) + 1000 - counted["mkdirs"]

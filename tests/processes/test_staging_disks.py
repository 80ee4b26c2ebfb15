"""Tasks of the staging committers on disks that are full, or read-only: real mounts.

Whatever the disk does, nothing is sent of an attempt that fails, the next one commits where there is room, and what an
attempt kept on a disk that it may no longer write to does not keep it from committing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.processes import staging_disks
from tests.processes.harness import run_apart

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


def run(case: str, directory: Path) -> dict[str, Any]:
    return run_apart(staging_disks.__file__, case, directory)


@pytest.mark.parametrize(
    ("case", "error", "left"),
    [
        ("full", "TaskError", []),
        ("full, by a path", "OSError of the program's own", []),
        ("full, and another one is there", "", []),
        ("read-only from the start", "TaskError", []),
        ("read-only from the start, and another one is there", "", []),
        # What is there cannot be removed: it stays until the disk can be written to.
        ("read-only while it writes", "TaskError", ["1"]),
        ("read-only before it commits", "", ["1", "2"]),
    ],
)
def test_a_disk_that_takes_nothing(case: str, error: str, left: list[str], tmp_path: Path) -> None:
    answer = run(case, tmp_path)
    assert (answer["error"], answer["left"]) == (error, left)
    # Uploads that wait, of an attempt that committed; none of one that failed.
    assert answer["uploads"] == (0 if error else 2)
    if error == "TaskError":
        assert "make room there, or name" in answer["next_step"]
        assert answer["outcome"] == "unchanged"
    assert answer["committed"] == 2
    assert answer["files"] == {"first": 5, "long": len(staging_disks.LONG) if case.startswith("full") else 1}
    assert (answer["left_at_the_end"], answer["uploads_at_the_end"]) == ([], 0)

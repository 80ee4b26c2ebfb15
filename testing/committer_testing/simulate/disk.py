"""The disk of the machine that a run's processes share, where a committer keeps files on one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from committer_testing.simulate.scenario import STAGING, Scenario


@contextmanager
def own_disk(scenario: Scenario) -> Iterator[list[str]]:
    """Gives a run a directory for temporary files of its own for a block; yields what is left in it at the end.

    A directory for all runs would be shared by runs of the same seed, whose jobs and attempts have the same names.
    """
    left: list[str] = []
    if all(plan.committer not in STAGING for plan in scenario.jobs):
        yield left
        return
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="committer-simulator-") as directory:
        tempfile.tempdir = directory
        try:
            yield left
        finally:
            tempfile.tempdir = before
        left += sorted(
            os.path.relpath(os.path.join(at, name), directory) for at, _, names in os.walk(directory) for name in names
        )

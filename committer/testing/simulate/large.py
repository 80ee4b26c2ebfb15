"""Small jobs whose drivers treat them as large ones: no file is kept in memory, records are read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from committer.stages import load_records, planned_files
from committer.testing.simulate.scenario import Scenario


@contextmanager
def records_read_again(scenario: Scenario) -> Iterator[None]:
    """Has drivers read records a second time, one after the other, for a block, where the run is about that."""
    if not scenario.reads_again:
        yield
        return
    before = load_records.ENTRIES_IN_MEMORY, planned_files.BYTES_IN_A_RUN
    load_records.ENTRIES_IN_MEMORY, planned_files.BYTES_IN_A_RUN = 0, 1
    try:
        yield
    finally:
        load_records.ENTRIES_IN_MEMORY, planned_files.BYTES_IN_A_RUN = before

"""Small jobs whose drivers treat them as large ones: no file is kept in memory, but on the disk, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from committer.stages.load import load_records, planned_files
from committer_testing.simulate.scenario import Scenario

# A record or two.
_FEW_BYTES: Final = 400


@contextmanager
def records_read_again(scenario: Scenario) -> Iterator[None]:
    """Has drivers go through records again, one after the other, for a block, where the run is about that.

    Of one run in three the disk keeps all, of one the first records, of one none: these are read again.
    """
    if not scenario.reads_again:
        yield
        return
    before = load_records.ENTRIES_IN_MEMORY, load_records.BYTES_ON_DISK, planned_files.BYTES_IN_A_RUN
    on_disk = (0, _FEW_BYTES, before[1])[scenario.seed % 3]
    load_records.ENTRIES_IN_MEMORY, load_records.BYTES_ON_DISK, planned_files.BYTES_IN_A_RUN = 0, on_disk, 1
    try:
        yield
    finally:
        load_records.ENTRIES_IN_MEMORY, load_records.BYTES_ON_DISK, planned_files.BYTES_IN_A_RUN = before

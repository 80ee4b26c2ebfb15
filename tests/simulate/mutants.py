"""Bugs to plant into the engine, each of which the search must find.

A mutant changes public stages and functions where it can: it stays the same bug when the engine's inside changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.simulate.bugs_after_decision import AFTER_DECISION
from tests.simulate.bugs_before_decision import BEFORE_DECISION
from tests.simulate.bugs_of_blocks import OF_BLOCKS
from tests.simulate.bugs_of_directories import OF_DIRECTORIES
from tests.simulate.bugs_of_files import OF_FILE_V1, OF_FILE_V2, OF_PARTITIONS
from tests.simulate.bugs_of_objects import OF_OBJECTS
from tests.simulate.bugs_of_records import OF_RECORDS
from tests.simulate.bugs_of_rules import OF_RULES
from tests.simulate.bugs_of_staging import OF_STAGING
from tests.simulate.bugs_of_uploads import OF_UPLOADS
from tests.simulate.bugs_of_workers import OF_WORKERS
from tests.simulate.patches import Patches

_OF_ONE_COMMITTER: Mapping[str, tuple[Callable[[Patches], None], ...]] = {
    "magic": OF_UPLOADS,
    "directory": OF_STAGING,
    "partitioned": OF_PARTITIONS,
    "block-list": OF_BLOCKS,
    "file-v1": OF_FILE_V1,
    "file-v2": OF_FILE_V2,
    "stocator": OF_OBJECTS,
}


def _name(plant: Callable[[Patches], None]) -> str:
    return plant.__name__.replace("_", "-")


MUTANTS: Mapping[str, Callable[[Patches], None]] = {
    _name(plant): plant
    for plants in (
        BEFORE_DECISION,
        AFTER_DECISION,
        OF_RECORDS,
        OF_DIRECTORIES,
        OF_RULES,
        OF_WORKERS,
        *_OF_ONE_COMMITTER.values(),
    )
    for plant in plants
}
"""Planted bugs, by name."""

_PLANTED_INTO = {_name(plant): committer for committer, plants in _OF_ONE_COMMITTER.items() for plant in plants}

AGAINST_RULES = frozenset(map(_name, OF_RULES))
"""Bugs that break a rule of the protocol, and perhaps no guarantee."""

WITH_WORKERS = frozenset(map(_name, OF_WORKERS))
"""Bugs that show only where workers publish."""

IN_FINDINGS = ("success-put-back-as-it-was", "success-written-over")
"""Bugs that few seeds show: `test_findings.py` has a schedule of its own for each."""

READ_OTHERWISE = ("file-v1", "file-v2", "stocator")
"""Committers with schedules, or readers, of their own: `tests.simulate.hunt` knows which."""


def committer_of(mutant: str, default: str = "manifest") -> str:
    """The committer that a mutant is planted into."""
    return _PLANTED_INTO.get(mutant, default)


@contextmanager
def apply(mutant: str) -> Iterator[None]:
    """Plants a bug for a block."""
    patches = Patches()
    try:
        MUTANTS[mutant](patches)
        yield
    finally:
        patches.undo()

"""Bugs to plant into the engine, and unsafe committers, each of which the search must find.

A mutant changes public stages and functions where it can: it stays the same bug when the engine's inside changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.simulate.bugs_after_decision import AFTER_DECISION
from tests.simulate.bugs_before_decision import BEFORE_DECISION
from tests.simulate.bugs_of_blocks import OF_BLOCKS
from tests.simulate.bugs_of_staging import OF_STAGING
from tests.simulate.bugs_of_uploads import OF_UPLOADS
from tests.simulate.bugs_of_workers import OF_WORKERS
from tests.simulate.patches import Patches

MUTANTS: Mapping[str, Callable[[Patches], None]] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (*BEFORE_DECISION, *AFTER_DECISION, *OF_UPLOADS, *OF_STAGING, *OF_WORKERS, *OF_BLOCKS)
}
"""Planted bugs, by name."""

_PLANTED_INTO = {
    plant.__name__.replace("_", "-"): committer
    for committer, plants in (("magic", OF_UPLOADS), ("directory", OF_STAGING), ("block-list", OF_BLOCKS))
    for plant in plants
}

WITH_WORKERS = frozenset(plant.__name__.replace("_", "-") for plant in OF_WORKERS)
"""Bugs that show only where workers publish."""

UNSAFE = ("file-v2", "direct")
"""Committers that break guarantees by design."""


def committer_of(mutant: str, default: str = "manifest") -> str:
    """The committer that a mutant is planted into."""
    if mutant in _PLANTED_INTO:
        return _PLANTED_INTO[mutant]
    return mutant if mutant in UNSAFE else default


@contextmanager
def apply(mutant: str) -> Iterator[None]:
    """Plants a bug for a block; nothing for an unsafe committer, which needs none."""
    patches = Patches()
    try:
        plant = MUTANTS.get(mutant)
        if plant is not None:
            plant(patches)
        yield
    finally:
        patches.undo()

"""Bugs to plant into the engine, and unsafe committers, each of which the search must find.

A mutant changes public stages and functions where it can: it stays the same bug when the engine's inside changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from committer.testing.simulate.bugs_after_decision import AFTER_DECISION
from committer.testing.simulate.bugs_before_decision import BEFORE_DECISION
from committer.testing.simulate.bugs_of_uploads import OF_UPLOADS
from committer.testing.simulate.patches import Patches
from committer.testing.simulate.scenario import CommitterName

MUTANTS: Mapping[str, Callable[[Patches], None]] = {
    plant.__name__.replace("_", "-"): plant for plant in (*BEFORE_DECISION, *AFTER_DECISION, *OF_UPLOADS)
}
"""Planted bugs, by name."""

_OF_UPLOADS = frozenset(plant.__name__.replace("_", "-") for plant in OF_UPLOADS)

UNSAFE: Mapping[str, CommitterName] = {"file-v2": "file-v2", "direct": "direct"}
"""Committers that break guarantees by design."""


def committer_of(mutant: str | None, default: CommitterName = "manifest") -> CommitterName:
    """The committer that a mutant is planted into."""
    if mutant in _OF_UPLOADS:
        return "magic"
    return UNSAFE.get(mutant or "", default)


@contextmanager
def apply(mutant: str | None) -> Iterator[None]:
    """Plants a bug for a block; nothing for None, and for a committer that needs none."""
    patches = Patches()
    try:
        plant = MUTANTS.get(mutant or "")
        if plant is not None:
            plant(patches)
        yield
    finally:
        patches.undo()

"""Which searches run: quick ones with the tests, all of them at night."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol_model.checks import REQUESTS_FAIL, STRICT
from tests.protocol_model.scenarios import SCENARIOS
from tests.protocol_model.search import FAULTS, Result, Search
from tests.protocol_model.stores import Kind

KINDS = ("directories", "adls", "objects", "oss")
LIMIT = 2_000_000  # states of one search; the nightly run has none below MOST
MOST = 30_000_000


class Run(NamedTuple):
    """A search of a scenario, with its store, faults and limit."""

    kind: str
    scenario: str
    faults: int
    limit: int = MOST

    def search(
        self, kinds: tuple[str, ...] = FAULTS, limit: int | None = None, *, trace: bool = False, strict: bool = False
    ) -> Result:
        scenario = SCENARIOS[self.scenario]
        world = scenario.world(Kind(self.kind), frozenset([STRICT] * strict + [REQUESTS_FAIL] * (self.faults > 0)))
        return Search(world, scenario, self.faults, kinds).run(limit or self.limit, trace=trace)


# Pairs of jobs and of drivers, without faults everywhere, with one where the search is small.
QUICK = (
    *(
        Run(kind, name, 0)
        for kind in KINDS
        for name in (
            "two set-ups", "two drivers, two files", "rollback", "kept from set-up", "replace and append",
            "two partitions", "recover, then the id again",
        )
    ),
    *(Run(kind, name, 1) for kind in KINDS for name in ("abort", "kept", "replace and append")),
)  # fmt: skip
QUICK_MUTANTS = (
    "no-close", "entry-late", "entry-reused", "entry-rewritten", "withdraw-unknown", "no-look", "mark-repeated",
    "give-back-absent", "read-once", "outcome-is-kept", "old-files-early", "undo-replaced",
)  # fmt: skip


def all_runs(*, whole: bool) -> Iterator[Run]:
    """Yields every scenario on every kind of store, without faults, then with one; with two at night."""
    for faults in (0, 1, 2) if whole else (0, 1):
        for kind in KINDS:
            for name in SCENARIOS:
                yield Run(kind, name, faults, MOST if whole else LIMIT)

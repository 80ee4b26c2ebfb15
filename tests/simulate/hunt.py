"""Counts the seeds that it takes to find a planted bug."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TypeAlias

from committer_testing.simulate.scenario import draw_scenario
from committer_testing.simulate.simulation import simulate
from tests.simulate.file_jobs import file_v1_schedules, file_v2_schedules, wrong_with_file_v1, wrong_with_file_v2
from tests.simulate.mutants import AGAINST_RULES, WITH_WORKERS, apply, committer_of
from tests.simulate.object_readers import DRAWN_AS, simulate_objects, wrong_with

MOST_SEEDS = 3_000


@dataclass(frozen=True)
class Find:
    """What a hunt came to.

    Attributes:
        mutant: Its name.
        seeds: How many seeds were run until it was found; None when it survived.
        seed: The seed that found it.
        guarantee: The guarantee that it breaks.
        message: What was seen.
        seconds: Real seconds.
    """

    mutant: str
    seeds: int | None
    seed: int | None
    guarantee: str
    message: str
    seconds: float

    def text(self) -> str:
        """A row of the table."""
        found = f"{self.seeds:5} seeds" if self.seeds is not None else " SURVIVED  "
        return f"{self.mutant:34} {found} {self.seconds:7.1f} s  {self.message[:110]}"

    def as_json(self) -> dict[str, object]:
        """For a program."""
        return {
            "mutant": self.mutant,
            "seeds": self.seeds,
            "seed": self.seed,
            "guarantee": self.guarantee,
            "message": self.message,
            "seconds": round(self.seconds, 3),
        }


Run: TypeAlias = Callable[[], list[tuple[str, str]]]
"""Runs one schedule: the guarantees that it breaks, and how."""


def hunt(mutant: str, *, start: int = 0, most: int = MOST_SEEDS) -> Find:
    """Runs seeds until one finds the mutant.

    A seed that fails without the mutant as well has found nothing.

    Args:
        mutant: Its name.
        start: The first seed.
        most: How many seeds to try.
    """
    began = time.perf_counter()
    for number, run in enumerate(islice(_runs(mutant), start, start + most)):
        with apply(mutant):
            wrong = run()
        if wrong and not run():
            guarantee, message = wrong[0]
            seconds = time.perf_counter() - began
            return Find(mutant, number + 1, start + number, guarantee, message, seconds)
    return Find(mutant, None, None, "", "", time.perf_counter() - began)


def _runs(mutant: str) -> Iterator[Run]:
    """The schedules of the committer that a mutant is planted into."""
    committer = committer_of(mutant)
    if committer == "file-v1":
        return (partial(wrong_with_file_v1, scenario) for scenario in file_v1_schedules())
    if committer == "file-v2":
        return (partial(wrong_with_file_v2, scenario) for scenario in file_v2_schedules())
    if committer == "stocator":
        return (partial(_wrong_with_objects, seed) for seed in count())
    workers, rules = mutant in WITH_WORKERS, mutant in AGAINST_RULES
    return (partial(_wrong_with_seed, seed, committer, workers=workers, rules=rules) for seed in count())


def _wrong_with_seed(seed: int, committer: str, *, workers: bool, rules: bool) -> list[tuple[str, str]]:
    """The guarantees that break; the rules of the protocol count for a bug that is planted against them."""
    result = simulate(draw_scenario(seed, committer, workers=workers))
    return [(one.guarantee, one.message) for one in result.violations if rules or one.guarantee != "protocol"]


def _wrong_with_objects(seed: int) -> list[tuple[str, str]]:
    """On every kind of store that `stocator` has."""
    for kind in DRAWN_AS:
        wrong = wrong_with(*simulate_objects(seed, kind)).partition("\n")[0]
        if wrong:
            return [(wrong.partition(":")[0], wrong)]
    return []

"""How many seeds it takes to find a planted bug, or a committer that is unsafe by design."""

from __future__ import annotations

import time
from dataclasses import dataclass

from committer.testing.simulate.scenario import draw_scenario
from tests.simulate.models import simulate_any
from tests.simulate.mutants import UNSAFE, WITH_WORKERS, apply, committer_of

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


def hunt(mutant: str, *, start: int = 0, most: int = MOST_SEEDS) -> Find:
    """Runs seeds until one finds the mutant.

    A seed that fails without the mutant as well has found nothing.

    Args:
        mutant: Its name.
        start: The first seed.
        most: How many seeds to try.
    """
    began = time.perf_counter()
    committer = committer_of(mutant)
    for number in range(most):
        scenario = draw_scenario(start + number, committer, workers=mutant in WITH_WORKERS)
        with apply(mutant):
            violations = simulate_any(scenario).violations
        if violations and not (mutant not in UNSAFE and simulate_any(scenario).violations):
            first = violations[0]
            seconds = time.perf_counter() - began
            return Find(mutant, number + 1, start + number, first.guarantee, first.message, seconds)
    return Find(mutant, None, None, "", "", time.perf_counter() - began)

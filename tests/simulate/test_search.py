"""The search itself: a share of it, another one at each commit (tests/rotation.py); wider behind the `slow` marker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from committer.testing.simulate.exhaustive import DELIVERIES, every_fault, singles, small
from committer.testing.simulate.report import Report
from committer.testing.simulate.scenario import Scenario, draw_scenario
from committer.testing.simulate.worlds import KINDS
from tests.rotation import rotated


def search(scenarios: Iterable[Scenario]) -> Report:
    report = Report()
    report.run(scenarios)
    assert not report.violations, report.text()
    assert report.schedules
    return report


@pytest.mark.parametrize("part", range(4))
def test_seeds(part: int) -> None:
    seeds = rotated(range(part * 300, part * 300 + 300), 6, f"seeds {part}")
    report = search(draw_scenario(seed) for seed in seeds)
    assert report.faults > 50
    assert report.fates["committed"] > report.fates["untouched"] > 10


def test_seeds_of_uploads() -> None:
    report = search(draw_scenario(seed, "magic") for seed in rotated(range(300), 6, "seeds of uploads"))
    assert report.faults > 50
    assert report.fates["committed"] > report.fates["untouched"] > 10


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_single_faults(kind: str, delivery: str) -> None:
    situation = ("append", "replace", "same-names")[len(kind + delivery) % 3]
    every = list(singles(small(kind, delivery, situation)))  # type: ignore[arg-type]
    # A prime number: every kind of trouble is among them.
    search(rotated(every, 19, f"{kind} {delivery}"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_seeds(part: int) -> None:
    seeds = range(10_000 + part * 1000, 11_000 + part * 1000)
    search(draw_scenario(seed) for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_seeds_of_uploads(part: int) -> None:
    seeds = range(10_000 + part * 1000, 11_000 + part * 1000)
    search(draw_scenario(seed, "magic") for seed in seeds)


@pytest.mark.slow
def test_every_single_fault() -> None:
    search(every_fault())


@pytest.mark.slow
def test_every_pair_of_faults() -> None:
    search(every_fault(pairs=True))

"""The search itself, as much of it as every change can afford; wider behind the `slow` marker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from committer.testing.simulate.exhaustive import DELIVERIES, every_fault, singles, small
from committer.testing.simulate.report import Report
from committer.testing.simulate.scenario import Scenario, draw_scenario
from committer.testing.simulate.worlds import KINDS


def search(scenarios: Iterable[Scenario]) -> Report:
    report = Report()
    report.run(scenarios)
    assert not report.violations, report.text()
    assert report.schedules
    return report


@pytest.mark.parametrize("part", range(4))
def test_seeds(part: int) -> None:
    seeds = range(part * 150, part * 150 + 150)
    report = search(draw_scenario(seed) for seed in seeds)
    assert report.faults > 100
    assert report.fates["committed"] > report.fates["untouched"] > 10


def test_seeds_of_uploads() -> None:
    report = search(draw_scenario(seed, "magic") for seed in range(150))
    assert report.faults > 100
    assert report.fates["committed"] > report.fates["untouched"] > 10


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_single_faults(kind: str, delivery: str) -> None:
    situation = ("append", "replace", "same-names")[len(kind + delivery) % 3]
    search(singles(small(kind, delivery, situation), stride=7))  # type: ignore[arg-type]


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

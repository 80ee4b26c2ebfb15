"""A sample of the search; scripts/nightly.sh searches many seeds and every fault."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from committer_testing.simulate.exhaustive import COMMON, DELIVERIES, rarer, singles, small
from committer_testing.simulate.report import Report
from committer_testing.simulate.scenario import STAGING, Scenario, draw_scenario
from committer_testing.simulate.worlds import KINDS, SERVICES
from tests.sweeps import sample

SITUATIONS_OF_STAGING = (*COMMON, "replace-same-names")


def search(scenarios: Iterable[Scenario]) -> Report:
    report = Report()
    report.run(scenarios)
    assert not report.violations, report.text()
    assert report.schedules
    return report


def check_counts(report: Report) -> None:
    """Of a share's thirty runs more jobs may stay untouched than are committed."""
    assert report.faults > 50
    assert min(report.fates["committed"], report.fates["untouched"]) > 10, report.fates


@pytest.mark.parametrize("part", range(2))
def test_seeds(part: int) -> None:
    seeds = sample(range(part * 600, part * 600 + 600), 20, f"seeds {part}")
    report = search(draw_scenario(seed) for seed in seeds)
    check_counts(report)


def test_seeds_of_uploads() -> None:
    report = search(draw_scenario(seed, "magic") for seed in sample(range(300), 10, "seeds of uploads"))
    check_counts(report)


def test_seeds_of_services_that_delete_by_name() -> None:
    drawn = [draw_scenario(seed, "magic") for seed in range(300)]
    services = [scenario for scenario in drawn if scenario.kind in SERVICES]
    assert {scenario.kind for scenario in services} == {*SERVICES}
    report = search(sample(services, 5, "seeds of services"))
    assert report.fates["committed"] > 0


@pytest.mark.parametrize("committer", ["manifest", "magic"])
def test_seeds_of_workers_that_publish(committer: str) -> None:
    seeds = sample(range(300), 30, f"seeds of workers of {committer}")
    report = search(draw_scenario(seed, committer, workers=True) for seed in seeds)
    assert report.faults > 10
    assert report.fates["committed"] > 0


def test_seeds_of_blocks() -> None:
    report = search(draw_scenario(seed, "block-list") for seed in sample(range(300), 10, "seeds of blocks"))
    check_counts(report)


@pytest.mark.parametrize("committer", sorted(STAGING))
def test_seeds_of_staging_committers(committer: str) -> None:
    report = search(draw_scenario(seed, committer) for seed in sample(range(300), 20, f"seeds of {committer}"))
    assert report.faults > 10
    assert report.fates["committed"] > 0


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("committer", sorted(STAGING))
def test_single_faults_of_staging_committers(committer: str, delivery: str) -> None:
    situation = SITUATIONS_OF_STAGING[len(committer + delivery) % len(SITUATIONS_OF_STAGING)]
    every = list(singles(small("s3", delivery, situation, committer=committer)))  # type: ignore[arg-type]
    search(sample(every, 97, f"{committer} {delivery}"))


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_single_faults(kind: str, delivery: str) -> None:
    situation = COMMON[len(kind + delivery) % 3]
    every = list(singles(small(kind, delivery, situation)))  # type: ignore[arg-type]
    # A prime number: every kind of trouble is among them.
    search(sample(every, 97, f"{kind} {delivery}"))


RARER = [(kind, situation) for kind in KINDS for situation in rarer(kind)]


@pytest.mark.parametrize(("kind", "situation"), RARER)
def test_single_faults_of_rarer_situations(kind: str, situation: str) -> None:
    delivery = DELIVERIES[len(kind + situation) % 2]
    every = list(singles(small(kind, delivery, situation)))
    search(sample(every, 293, f"{kind} {situation}"))

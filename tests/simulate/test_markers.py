"""What the checker takes for an older `_SUCCESS` in the place of a later one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from committer import CommitterConfig
from committer.records.job_state import Decision, JobOutcome, encode_record
from committer.testing.simulate.checker import Checker, GuaranteeBrokenError
from committer.testing.simulate.ledger import Ledger
from committer.testing.simulate.worlds import OUT, MemoryWorld, places_of


def ended(ended_at: dict[str, str]) -> Checker:
    """Jobs without tasks that ended at these times, of which the first one's `_SUCCESS` stands."""
    world = MemoryWorld("local")
    checker = Checker(world, {job: Ledger(0, CommitterConfig()) for job in ended_at})
    for job, created in ended_at.items():
        told: dict[str, Any] = {"job_id": job, "driver": "d", "created": created}
        own, _magic = places_of(job)
        world.write(f"{own}setup", b"{}")
        world.write(f"{own}decision", encode_record(Decision(decision="commit", **told)))
        checker.step()
        world.write(f"{own}outcome", encode_record(JobOutcome(outcome="committed", **told)))
        checker.step()
    world.write(f"{OUT}/_SUCCESS", json.dumps({"jobId": next(iter(ended_at))}).encode())
    checker.step()
    return checker


def test_of_two_jobs_that_end_within_a_millisecond_either_marker_may_stand() -> None:
    """`_SUCCESS` tells no shorter time, so that no driver could know better."""
    first, second = "2026-01-01T00:00:00.123400+00:00", "2026-01-01T00:00:00.123900+00:00"
    for marked, ended_at in (("j1", {"j1": first, "j2": second}), ("j2", {"j2": second, "j1": first})):
        checker = ended(ended_at)
        assert json.loads(checker.world.files()[f"{OUT}/_SUCCESS"])["jobId"] == marked
        # What it finds it raises.
        checker.settle(left_over=True)


def test_the_marker_of_a_job_that_ended_a_millisecond_before_another_is_found() -> None:
    checker = ended({"j1": "2026-01-01T00:00:00.123900+00:00", "j2": "2026-01-01T00:00:00.124000+00:00"})
    with pytest.raises(GuaranteeBrokenError, match="_SUCCESS is of j1, and j2 committed later"):
        checker.settle(left_over=True)

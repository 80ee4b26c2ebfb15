"""The audit context: set for a block, seen in everything started inside it."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.workers import run_workers
from committer.logs import audit, current_audit


def test_nothing_is_set_outside() -> None:
    assert current_audit() == {}


def test_only_the_keys_given_are_set_and_the_rest_comes_back() -> None:
    with audit(ji="job", ta="task"):
        with audit(st="outer"):
            with audit(st="inner", ta="other"):
                assert current_audit() == {"ji": "job", "ta": "other", "st": "inner"}
            assert current_audit() == {"ji": "job", "ta": "task", "st": "outer"}
        assert current_audit() == {"ji": "job", "ta": "task"}
    assert current_audit() == {}


def test_it_comes_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="x"), audit(ji="job"):
        raise ValueError("x")
    assert current_audit() == {}


def test_what_is_given_out_is_a_copy() -> None:
    with audit(ji="job"):
        current_audit()["ji"] = "other"
        assert current_audit() == {"ji": "job"}


async def test_it_reaches_every_worker_and_two_jobs_do_not_mix() -> None:
    seen: set[tuple[str, str, int]] = set()

    async def stage(job: str) -> None:
        async def work(item: int) -> None:
            with audit(ta=f"task-{item}"):
                await asyncio.sleep(0)
                assert current_audit() == {"ji": job, "st": "rename", "ta": f"task-{item}"}
            seen.add((current_audit()["ji"], current_audit()["st"], item))

        with audit(ji=job, st="rename"):
            await run_workers(range(30), work, workers=5)

    await asyncio.gather(stage("a"), stage("b"))
    assert seen == {(job, "rename", item) for job in "ab" for item in range(30)}

"""A forced cleanup of a job that has an outcome, and whose last steps were not done: it does them first."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.api.cleanup import clean_and_report
from committer.errors import (
    JobDecidedError,
    MultipleError,
    OutcomeUnknownError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from committer.testing.faults import Fault, SimulatedCrash
from tests.places import EVERY_COMMITTER, Place, place_fixture

place = place_fixture(*EVERY_COMMITTER)

OLD = {"a=1/old": b"old"}
NEW = {"a=1/part": b"new", "a=2/part": b"new", "a=3/part": b"new"}


def outputs(place: Place) -> dict[str, bytes]:
    """What a reader sees, and `_SUCCESS`."""
    return {
        name: data.rstrip(b" ") if name == "_SUCCESS" else data
        for name, data in place.all_files().items()
        if name == "_SUCCESS" or name in place.files()
    }


async def run_until(place: Place, fault: Fault, **choices: object) -> None:
    """A job whose driver dies where the fault says."""
    config = CommitterConfig(io_concurrency=1, **choices)  # type: ignore[arg-type]
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, NEW)
    place.faults(fault)
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    revive(place)


def revive(place: Place) -> None:
    """Another process takes over from the one that died."""
    place.store.faults.clear()
    place.store.crashed = False


async def leave_half_taken_back(place: Place, **choices: object) -> None:
    """Every file is published, and a rollback died right after its outcome stood: nothing is undone."""
    await run_until(place, Fault(kind="crash_before", operation="put", path="/outcome"), **choices)
    place.faults(Fault(kind="crash_after", operation="put", path="/outcome"))
    with pytest.raises(SimulatedCrash):
        await place.recover("j", rollback=True, force=True)
    revive(place)
    assert place.files().items() >= NEW.items()


async def clean_up(place: Place, **choices: object) -> committer.CleanupReport:
    return await committer.cleanup(place.dest, storage_options=place.options, **choices)  # type: ignore[arg-type]


REPLACING = {"conflict_mode": "replace", "superseded_scope": "destination"}


@pytest.mark.parametrize("choices", [{}, REPLACING], ids=["append", "overwrite"])
@pytest.mark.parametrize("which", [{"job_id": "j"}, {"older_than": 0}], ids=["named", "by age"])
async def test_what_was_not_taken_back_is_taken_back_first(
    place: Place, choices: dict[str, object], which: dict[str, object]
) -> None:
    if choices and place.publishes_by == "complete_upload":
        pytest.skip("a job that replaces files on S3 only goes forward")
    await place.run_job(OLD, job_id="before")
    before = outputs(place)
    await leave_half_taken_back(place, **choices)
    report = await clean_up(place, force=True, **which)
    assert (report.removed, report.kept, report.given_up) == (["j"], {}, {})
    assert outputs(place) == before
    assert place.temporary() == set()


async def test_without_force_it_is_kept_and_no_advice_says_force(place: Place) -> None:
    await leave_half_taken_back(place)
    before = place.all_files()
    with pytest.raises(JobDecidedError, match="its rollback was begun and not finished") as caught:
        await clean_up(place, job_id="j")
    assert place.all_files() == before
    assert "recover(" in caught.value.next_step
    assert "rollback=True" in caught.value.next_step
    assert "cleanup" not in caught.value.next_step


@pytest.mark.parametrize("outcome_kept", [False, True])
async def test_a_committed_job_gets_its_success_file_first(place: Place, outcome_kept: bool) -> None:
    await run_until(place, Fault(kind="crash_after", operation="put", path="/outcome"), outcome_kept=outcome_kept)
    assert "_SUCCESS" not in place.all_files()
    report = await clean_up(place, job_id="j", force=True)
    assert (report.removed, report.given_up) == (["j"], {})
    assert outputs(place).keys() == {*NEW, "_SUCCESS"}
    assert place.temporary() == set()


async def test_last_steps_that_cannot_be_done_are_given_up_and_told(place: Place) -> None:
    """The records that say what was published are damaged: nothing else than force ends this job."""
    await leave_half_taken_back(place)
    for name in place.all_files():
        if "/plan-" in name or name.endswith(("-manifest.json", ".pendingset")):
            place.write(name, b"{")
    report = await clean_up(place, job_id="j", force=True)
    assert report.removed == ["j"]
    assert "j" in report.given_up
    assert place.files() == NEW
    assert place.temporary() == set()


@pytest.mark.parametrize(
    ("kind", "error", "workers", "which"),
    [
        ("forbidden", StorePermissionError, 3, {"job_id": "j"}),
        ("unanswered", StoreOutcomeUnknownError, 1, {"job_id": "j"}),
        ("unanswered", StoreOutcomeUnknownError, 3, {"older_than": 0}),
        ("unavailable", StoreUnavailableError, 1, {"older_than": 0}),
    ],
)
async def test_a_failure_that_may_pass_gives_nothing_up(
    place: Place, kind: str, error: type[Exception], workers: int, which: dict[str, object]
) -> None:
    await leave_half_taken_back(place)
    before = place.all_files()
    for operation in ("rename_file", "delete_file_if"):
        place.faults(Fault(kind=kind, operation=operation, times=None))
    config = CommitterConfig(io_concurrency=workers)
    if "job_id" in which:
        with pytest.raises((error, OutcomeUnknownError, MultipleError)):
            await clean_up(place, force=True, config=config, **which)
    else:
        report = await clean_up(place, force=True, config=config, **which)
        assert (report.removed, [*report.kept], report.given_up) == ([], ["j"], {})
    assert place.files() == NEW
    assert place.all_files().keys() == before.keys()
    place.store.faults.clear()
    assert not (await place.recover("j", rollback=True, force=True)).success
    assert place.files() == {}


async def test_a_plan_changes_nothing(place: Place) -> None:
    await leave_half_taken_back(place)
    before = place.all_files()
    report = await clean_and_report(place.dest, dry=True, job_id="j", force=True, storage_options=place.options)
    assert (report.removed, report.given_up) == (["j"], {})
    assert place.all_files() == before

"""Which objects of `stocator` a cleanup takes for losers', by what stands of the job: none where that is not known."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

import committer
from committer.committers.context import open_context
from committer.committers.stocator import losing_runs
from committer.records.job_state import Decision, JobOutcome, JobSetup, decode_record, encode_record
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.engine.stocator_place import StocatorPlace
from tests.job_paths import in_job

DECISION, OUTCOME, SETUP = "decision", "outcome", "setup"


async def _decided() -> tuple[StocatorPlace, committer.Job]:
    """A job whose driver died when it had decided: of task 0 two runs of attempt 1, of which one won, and an attempt 0."""
    place = StocatorPlace("s3", delivery="message")
    job = await place.open_job(job_id="j")
    for attempt in (0, 1):
        dying = FaultyStore(place.store.inner, [Fault(kind="crash_before", operation="put", path="/attempts/")])
        with pytest.raises(SimulatedCrash):
            async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options={"store": dying}) as task:
                async with task.open("part-0") as file:
                    await file.write(b"lost")
    message = await place.run_task(job, 0, {"part-0": b"won"}, attempt=1)
    place.faults(Fault(kind="crash_before", operation="put", path="/outcome"))
    with pytest.raises(SimulatedCrash):
        await job.commit([message], tasks=1)
    place.store.crashed = False
    return place, job


async def _lost(place: StocatorPlace, job: committer.Job) -> list[bytes]:
    """The contents of the objects that a cleanup would delete now."""
    context = await open_context(job.spec, place.store, owned=False)
    runs = await context.forms.upload_lists(context)
    assert len(runs) == 3
    lost = {run.name for run in await losing_runs(context, runs)}
    statuses = await context.forms.outside(context)
    objects = [place.read(status.path.relative_to(context.layout.destination)) for status in statuses]
    assert len(objects) == len(lost)
    return sorted(objects)


def _change(name: str, kind: type, **fields: object) -> Callable[[StocatorPlace], None]:
    def change(place: StocatorPlace) -> None:
        path = in_job(place, "j", name)
        record = decode_record(place.read(path), kind, source=name)
        place.write(path, encode_record(msgspec.structs.replace(record, **fields)))

    return change


def _end(outcome: str, **fields: object) -> Callable[[StocatorPlace], None]:
    def end(place: StocatorPlace) -> None:
        record = JobOutcome(job_id="j", outcome=outcome, driver="d", created="2026-01-01T00:00:00+00:00", **fields)  # type: ignore[arg-type]
        place.write(in_job(place, "j", OUTCOME), encode_record(record))

    return end


def _other_setup(place: StocatorPlace) -> None:
    path = in_job(place, "j", SETUP)
    setup = decode_record(place.read(path), JobSetup, source=SETUP)
    spec = msgspec.structs.replace(setup.spec, setup="another")
    place.write(path, encode_record(msgspec.structs.replace(setup, spec=spec)))


ABORTED = _change(DECISION, Decision, decision="abort", winners=[])
ALL, LOST, NONE = [b"lost", b"lost", b"won"], [b"lost", b"lost"], list[bytes]()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], LOST, id="decided to commit"),
        pytest.param([_end("committed")], LOST, id="committed"),
        pytest.param([_end("rolled-back")], ALL, id="rolled back"),
        pytest.param([ABORTED], ALL, id="aborted"),
        pytest.param([lambda place: place.remove(in_job(place, "j", DECISION))], NONE, id="undecided"),
        pytest.param(
            [_end("committed"), lambda place: place.remove(in_job(place, "j", DECISION))],
            NONE,
            id="its decision is gone",
        ),
        pytest.param([ABORTED, _end("committed")], NONE, id="an abort that came late"),
        pytest.param(
            [ABORTED, lambda place: place.remove(in_job(place, "j", SETUP))], NONE, id="an abort of a job that is gone"
        ),
        pytest.param(
            [lambda place: place.write(in_job(place, "j", DECISION), b"damaged")],
            NONE,
            id="a decision that cannot be read",
        ),
        pytest.param(
            [lambda place: place.write(in_job(place, "j", SETUP), b"damaged")], NONE, id="a setup that cannot be read"
        ),
    ],
)
async def test_what_a_cleanup_takes_for_lost(
    changes: list[Callable[[StocatorPlace], None]], expected: list[bytes]
) -> None:
    place, job = await _decided()
    for change in changes:
        change(place)
    assert await _lost(place, job) == expected


async def test_of_an_attempt_that_ran_twice_neither_has_lost_where_its_record_is_gone() -> None:
    place, job = await _decided()
    for name in [name for name in place.all_files() if "/attempts/" in name]:
        place.remove(name)
    assert await _lost(place, job) == [b"lost"]

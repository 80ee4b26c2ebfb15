"""`stocator` under faults at every store call of its drivers and its tasks: before the call, after it, and later.

A reader who goes by `_SUCCESS` reads all files of the job or none. Whatever ends the job, nothing of it is left that
does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, get_args

import msgspec
import pytest

import committer
from committer.committers.context import open_context
from committer.committers.stocator import losing_runs
from committer.errors import CommitterError, JobNotFoundError, JobStateError
from committer.flow.runtime import use_runtime
from committer.records.job_state import Decision, JobOutcome, decode_record, encode_record
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.committers.stocator_place import PROFILES, StocatorPlace
from tests.job_paths import in_job
from tests.places import write_file
from tests.sweeps import Share

WON = {"a=1/part-0": b"won", "part-1": b"won too"}
LOST = {"a=1/part-0": b"lost", "part-2": b"lost"}
OTHERS = {"old": b"another program's"}
End = Literal["recover", "roll back", "clean up"]

EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES)
EVERY_KIND = pytest.mark.parametrize("kind", get_args(FaultKind))


async def _write(
    spec: committer.JobSpec, store: FaultyStore, attempt: int, files: dict[str, bytes]
) -> committer.TaskCommit:
    async with committer.open_task(spec, task=0, attempt=attempt, storage_options={"store": store}) as task:
        for name, data in files.items():
            await write_file(task, name, data)
    return task.task_commit


async def _arrived(store: FaultyStore) -> None:
    while store.under_way:
        await asyncio.gather(*store.under_way)


class Run:
    """A job with a winner, and what an attempt left that was killed before it committed."""

    place: StocatorPlace
    job: committer.Job
    message: committer.TaskCommit

    async def begin(self, profile: str, *, winner: bool = True) -> None:
        self.place = place = StocatorPlace(profile, delivery="message")
        for name, data in OTHERS.items():
            place.write(name, data)
        self.job = await place.open_job(job_id="j")
        dying = FaultyStore(place.store.inner, [Fault(kind="crash_before", operation="put", path="/attempts/")])
        with pytest.raises(SimulatedCrash):
            await _write(self.job.spec, dying, 0, LOST)
        if winner:
            self.message = await _write(self.job.spec, place.store, 1, WON)

    async def check(self, _call: Call | None = None) -> None:
        assert self.place.files() in (OTHERS, OTHERS | WON)

    async def commit_by(self, driver: FaultyStore) -> bool:
        driver.before_call = self.check
        try:
            async with committer.attach_job(self.job.spec, storage_options={"store": driver}) as attached:
                return (await attached.commit([self.message], tasks=1)).success
        except (SimulatedCrash, CommitterError):
            return False

    async def end(self, how: End) -> None:
        place, state = self.place, (await self.place.states()).get("j")
        if state is None:
            return
        if how == "clean up":
            await committer.cleanup(place.dest, job_id="j", force=True, storage_options=place.options)
        elif state == "open":
            async with place.attach_job("j") as attached:
                await (attached.commit([self.message], tasks=1) if how == "recover" else attached.abort())
        elif how == "recover":
            await place.recover("j")
        else:
            try:
                await place.recover("j", rollback=True, force=True)
            except JobStateError as error:
                assert error.outcome == "committed", error
                await place.recover("j")


@EVERY_PROFILE
@EVERY_KIND
@pytest.mark.parametrize("how", get_args(End))
async def test_a_hit_driver_is_followed_by_another(profile: str, how: End, kind: FaultKind, share: Share) -> None:
    seen = set[bool]()
    with use_runtime(VirtualRuntime()):
        for number in share.counted():
            run = Run()
            await run.begin(profile)
            driver = FaultyStore(run.place.store.inner, [Fault(kind=kind, call=number)])
            committed = await run.commit_by(driver)
            if not any(call.fault for call in driver.calls):
                break
            await run.check()
            await run.end(how)
            await _arrived(driver)
            if "j" in await run.place.states():
                # What arrived late made a job's directory of what was gone.
                await committer.cleanup(run.place.dest, job_id="j", force=True, storage_options=run.place.options)
            await run.check()
            read = run.place.files() == OTHERS | WON
            assert read or not committed
            assert read or how != "recover", driver.log()
            left = {run.place.objects()[name] for name in run.place.losers()}
            # A decided job that is given up keeps what its decision names.
            assert left <= (set(WON.values()) if how == "clean up" and not read else set()), driver.log()
            seen.add(read)
    assert number > 30
    assert True in seen or not share.is_whole


@EVERY_PROFILE
@EVERY_KIND
async def test_a_task_that_is_hit_counts_as_a_whole_or_not_at_all(profile: str, kind: FaultKind, share: Share) -> None:
    with use_runtime(VirtualRuntime()):
        for number in share.counted():
            run = Run()
            await run.begin(profile, winner=False)
            store = FaultyStore(run.place.store.inner, [Fault(kind=kind, call=number)])
            try:
                run.message = await _write(run.job.spec, store, 1, WON)
            except (SimulatedCrash, CommitterError):
                run.message = await _write(run.job.spec, run.place.store, 2, WON)
            if not any(call.fault for call in store.calls):
                break
            await _arrived(store)
            await run.end("recover")
            assert run.place.files() == OTHERS | WON
            assert run.place.losers() == set(), store.log()
    assert number > 8


@EVERY_PROFILE
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_dead_cleanup_is_followed_by_another(profile: str, kind: FaultKind, share: Share) -> None:
    """Of a job that was aborted, and of one that committed: what counts stays, what does not goes."""
    for decided in (False, True):
        for number in share.counted():
            run = Run()
            await run.begin(profile)
            if decided:
                dying = FaultyStore(
                    run.place.store.inner, [Fault(kind="crash_before", operation="put", path="table/_SUCCESS")]
                )
                assert not await run.commit_by(dying)
            store = FaultyStore(run.place.store.inner, [Fault(kind=kind, call=number)])
            try:
                if decided:
                    await committer.recover(run.place.dest, "j", storage_options={"store": store})
                else:
                    await committer.cleanup(run.place.dest, job_id="j", storage_options={"store": store})
                # A listing that is not read to its end has no end to crash after.
                if number > len(store.calls):
                    break
            except SimulatedCrash:
                pass
            try:
                if decided:
                    assert (await run.place.recover("j")).success
                else:
                    await committer.cleanup(run.place.dest, job_id="j", storage_options=run.place.options)
            except JobNotFoundError:
                pass
            assert run.place.files() == (OTHERS | WON if decided else OTHERS)
            assert run.place.losers() == set(), store.log()
            assert run.place.temporary() == set()
        assert number > 15


# -- which objects of `stocator` a cleanup takes for losers', by what stands of the job: none where that is not k -------


DECISION, OUTCOME, SETUP = "decision", "outcome", "setup"


async def _decided() -> tuple[StocatorPlace, committer.Job]:
    """A job whose driver died when it had decided: of task 0 two runs of attempt 1, of which one won, and an attempt 0."""
    place = StocatorPlace("s3", delivery="message")
    job = await place.open_job(job_id="j")
    for attempt in (0, 1):
        dying = FaultyStore(place.store.inner, [Fault(kind="crash_before", operation="put", path="/attempts/")])
        with pytest.raises(SimulatedCrash):
            async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options={"store": dying}) as task:
                await write_file(task, "part-0", b"lost")
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


ABORTED = _change(DECISION, Decision, decision="abort", winners=[])
ALL_LOST, TWO_LOST, NONE_LOST = [b"lost", b"lost", b"won"], [b"lost", b"lost"], list[bytes]()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], TWO_LOST, id="decided to commit"),
        pytest.param([_end("committed")], TWO_LOST, id="committed"),
        pytest.param([_end("rolled-back")], ALL_LOST, id="rolled back"),
        pytest.param([ABORTED], ALL_LOST, id="aborted"),
        pytest.param([lambda place: place.remove(in_job(place, "j", DECISION))], NONE_LOST, id="undecided"),
        pytest.param(
            [_end("committed"), lambda place: place.remove(in_job(place, "j", DECISION))],
            NONE_LOST,
            id="its decision is gone",
        ),
        pytest.param([ABORTED, _end("committed")], NONE_LOST, id="an abort that came late"),
        pytest.param(
            [ABORTED, lambda place: place.remove(in_job(place, "j", SETUP))],
            NONE_LOST,
            id="an abort of a job that is gone",
        ),
        pytest.param(
            [lambda place: place.write(in_job(place, "j", DECISION), b"damaged")],
            NONE_LOST,
            id="a decision that cannot be read",
        ),
        pytest.param(
            [lambda place: place.write(in_job(place, "j", SETUP), b"damaged")],
            NONE_LOST,
            id="a setup that cannot be read",
        ),
    ],
)
async def test_what_is_taken_for_lost(changes: list[Callable[[StocatorPlace], None]], expected: list[bytes]) -> None:
    place, job = await _decided()
    for change in changes:
        change(place)
    assert await _lost(place, job) == expected


async def test_of_an_attempt_that_ran_twice_neither_has_lost_where_its_record_is_gone() -> None:
    place, job = await _decided()
    for name in [name for name in place.all_files() if "/attempts/" in name]:
        place.remove(name)
    assert await _lost(place, job) == [b"lost"]

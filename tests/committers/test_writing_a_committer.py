"""The committer of docs/writing-a-committer.md, as it exists there, put to what all committers share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

import committer
from committer import CommitterConfig
from committer.committers import registry
from committer.committers.actions import PublishAction
from committer.committers.registry import committer_for, register_committer, unregister_committer
from committer.errors import JobStateError, JobUndecidedError, TargetExistsError, UnsupportedError
from committer.flow.runtime import use_runtime
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.committers import test_commit_protocol as shared
from tests.job_paths import in_job
from tests.places import DiskPlace, MemoryPlace, Place

# Collected here once more, and run with the places below.
_SHARED = (
    shared.test_cancellation_in_the_block_aborts,
    shared.test_commit_is_a_no_op_after_commit_and_abort_too,
    shared.test_concurrent_task_commits_with_shared_sub_directory,
    shared.test_duplicate_task_commit_is_ok,
    shared.test_exception_in_a_task_aborts_the_task_only,
    shared.test_exception_in_the_block_aborts,
    shared.test_failing_abort_then_idempotent_abort,
    shared.test_full_lifecycle_shows_nothing_before_job_commit,
    shared.test_job_commit_that_fails_once_and_is_retried,
    shared.test_job_commit_without_task_commit_publishes_nothing,
    shared.test_lifecycle_facts_that_engines_ask_for,
    shared.test_no_outputs,
    shared.test_of_two_attempts_that_run_side_by_side_the_last_commit_wins,
    shared.test_two_attempts_second_wins,
    shared.test_two_jobs_to_adjacent_paths_interleaved,
)
globals().update({test.__name__: test for test in _SHARED})

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-committer.md"
NAME = "hard-link"
OWN_LAYOUT = "hard-link-elsewhere"
FILES = {"a=1/part-0": b"one", "a=1/part-1": b"two", "part-2": b"three"}
OLD = {"part-2": b"old", "b=1/part-9": b"another job's"}


class ElsewhereLayout(JobLayout):
    """Task records, and their names, as no committer of this library has them."""

    record_suffix: ClassVar[str] = ".linked"
    record_kind: ClassVar[str] = "list of links"

    def _place_records(self) -> tuple[StorePath, StorePath]:
        return self.job_attempt_directory / "committed", self.job_attempt_directory / "begun"


class OnDisk(DiskPlace):
    """A disk, with jobs of the page's committer."""

    committer = NAME
    publishes_by = "link_file"

    def open_job(self, **arguments: object):
        return super().open_job(committer=NAME, **arguments)


class InMemory(MemoryPlace):
    """A memory space, with jobs of the page's committer."""

    def __init__(self, name: str = NAME) -> None:
        super().__init__("local")
        self.committer, self.publishes_by = name, "link_file"

    def open_job(self, **arguments: object):
        return super().open_job(committer=self.committer, **arguments)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Runs the page's first block, which registers its committer; beside it one with a layout of its own."""
    block = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(block, str(PAGE), "exec"), names)
    kind = type(committer_for(NAME))
    register_committer(type("Elsewhere", (kind,), {"name": OWN_LAYOUT, "listed_layout": ElsewhereLayout}))
    yield
    unregister_committer(NAME)
    unregister_committer(OWN_LAYOUT)


@pytest.fixture(params=["disk", "memory"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: Place = OnDisk(tmp_path) if request.param == "disk" else InMemory()
    yield made
    await made.store.close()


async def _prepared(place: Place) -> committer.Job:
    """A job with two tasks that will replace a file."""
    for name, data in OLD.items():
        place.write(name, data)
    job = await place.open_job(job_id="j", config=CommitterConfig(existing_target="replace"))
    await place.run_task(job, 0, {"a=1/part-0": b"one", "part-2": b"three"})
    await place.run_task(job, 1, {"a=1/part-1": b"two"})
    return job


async def _calls_of_a_commit() -> int:
    place = InMemory()
    job = await _prepared(place)
    before = sum(place.store.counts().values())
    await job.commit()
    return sum(place.store.counts().values()) - before


@pytest.mark.parametrize("name", [NAME, OWN_LAYOUT])
@pytest.mark.parametrize("rollback", [False, True])
async def test_driver_that_dies_before_any_call_is_followed_by_another(rollback: bool, name: str) -> None:
    """Each ends as a commit that was not disturbed would, or as if the job had never been."""
    ended = set()
    for last in range(await _calls_of_a_commit()):
        place = InMemory(name)
        job = await _prepared(place)
        calls = 0

        async def before(call: Call, last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls > last:
                raise SimulatedCrash

        driver = FaultyStore(place.space.store())
        driver.before_call = before
        with pytest.raises(SimulatedCrash):
            async with committer.attach_job(job.spec, storage_options={"store": driver}) as attached:
                await attached.commit()
        if place.temporary():
            try:
                committed = (await place.recover("j", rollback=rollback)).success
            except JobUndecidedError:
                assert not rollback
                await job.abort()
                committed = False
            except JobStateError as error:
                # The outcome stands: it can only be finished.
                assert rollback
                assert error.outcome == "committed"
                committed = (await place.recover("j")).success
        else:
            committed = (await place.recover("j")).success
        assert place.files() == ({**OLD, **FILES} if committed else OLD), last
        assert place.temporary() == set()
        ended.add(committed)
    assert ended == {True, False}


async def test_a_file_that_came_meanwhile_is_kept_and_the_job_taken_back(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)

    async def before(call: Call) -> None:
        if call.operation == "link_file" and "part-2" not in place.files():
            place.write("part-2", b"another job's")

    place.store.before_call = before
    with pytest.raises(TargetExistsError) as refused:
        await job.commit()
    assert refused.value.outcome == "unchanged"
    assert place.files() == {"part-2": b"another job's"}


async def test_layout_of_a_committers_own_is_found_by_operators(tmp_path: Path) -> None:
    """Where only the id of a job is known, its setup record says whose layout it has."""
    place = InMemory(OWN_LAYOUT)
    job = await _prepared(place)
    records = [name for name in place.all_files() if name.endswith(".linked")]
    assert {name.rpartition("/")[0] for name in records} == {in_job(place, "j", "00/committed")}
    assert len(records) == 2
    [info] = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (info.committer, info.state) == (OWN_LAYOUT, "open")
    await job.close()
    kept = CommitterConfig(diagnostics_manifest_directory=str(tmp_path / "kept"))
    async with committer.attach_job(place.dest, job_id="j", config=kept, storage_options=place.options) as attached:
        assert (await attached.commit()).files_committed == 3
    assert place.files() == {**OLD, **FILES}
    assert place.temporary() == set()
    assert len(list((tmp_path / "kept").rglob("*.linked"))) == 2


async def test_a_job_is_as_young_as_its_task_records_in_a_layout_of_its_own() -> None:
    place, runtime = InMemory(OWN_LAYOUT), VirtualRuntime(start=datetime(2026, 3, 1, tzinfo=UTC))
    with use_runtime(runtime):
        job = await place.open_job(job_id="j")
        async with await place.open_task(job.spec, 0) as task:
            await runtime.advance(3600)
        assert task.task_commit is not None
        report = await committer.cleanup(place.dest, older_than=1800, storage_options=place.options)
        assert report.kept == {"j": "it is younger"}
        await job.close()


async def test_a_store_that_cannot_link_is_refused() -> None:
    place = MemoryPlace("gcs")
    with pytest.raises(UnsupportedError, match="give a file a second name"):
        await place.open_job(committer=NAME)


def test_a_name_that_is_taken_is_not_registered_again() -> None:
    kind = type(committer_for(NAME))
    register_committer(kind)
    assert type(committer_for(NAME)) is kind
    built_in = type("Mine", (kind,), {"name": "manifest"})
    with pytest.raises(ValueError, match="'manifest'"):
        register_committer(built_in)
    assert committer_for("manifest").name in registry.BUILT_IN


def test_an_action_without_a_rollback_is_refused_when_it_is_defined() -> None:
    with pytest.raises(TypeError, match="HalfAnAction has no roll_back"):
        type("HalfAnAction", (PublishAction,), {})

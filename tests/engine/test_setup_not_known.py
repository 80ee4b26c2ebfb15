"""Going on with a job whose setup record does not say what it is: the record is gone, or its committer is not known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.committers.manifest.committer import ManifestCommitter
from committer.committers.registry import register_committer, unregister_committer
from committer.errors import JobStateError, UnsupportedError
from committer.opening import Opening
from committer.spec import Delivery
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from tests.job_paths import in_job
from tests.neighbours.meeting import Table

OLD = {"part-0": b"old", "part-1": b"old"}
CONFIG = CommitterConfig(conflict_mode="replace")


async def _set_up(table: Table, name: str | None = None) -> None:
    job = await committer.open_job(
        table.dest, job_id="job", committer=name, config=CONFIG, storage_options=table.options
    )
    async with (
        committer.open_task(job.spec, task=0, storage_options=table.options) as task,
        task.open("part-0") as file,
    ):
        await file.write(b"new")
    await job.close()


async def _die_once_published(table: Table, joining: Opening[committer.Job], store: FaultyStore) -> None:
    published = False

    async def before(call: Call) -> None:
        nonlocal published
        if published:
            raise SimulatedCrash
        published = call.destination is not None and call.destination.name == "part-0"

    store.before_call = before
    with pytest.raises(SimulatedCrash):
        async with joining as job:
            await job.commit(tasks=1)
    assert table.files() == {"part-0": b"new", "part-1": b"old"}


# Where an old file cannot be kept by a link, a job that replaced one only goes forward.
@pytest.mark.parametrize(("profile", "rollback"), [("local", True), ("local", False), ("hdfs", False)])
async def test_recover_a_job_that_lost_its_setup_record(profile: str, rollback: bool) -> None:
    """The old files lie in the directory of its setup, whose name nothing else says."""
    table = Table(profile, OLD)
    await _set_up(table)
    store = FaultyStore(table.space.store())
    joining = committer.attach_job(table.dest, job_id="job", storage_options={"store": store})
    await _die_once_published(table, joining, store)
    table.remove(in_job(table, "job", "setup"))
    await committer.recover(table.dest, "job", rollback=rollback, storage_options=table.options)
    assert table.files() == (OLD if rollback else {"part-0": b"new"})
    assert table.temporary() == set()


async def test_recover_a_job_that_was_joined_as_if_hadoop_had_set_it_up() -> None:
    """Its driver knew no name of the setup from its spec; the recoverer reads it in the setup record."""
    table = Table("local", OLD)
    await _set_up(table)
    store = FaultyStore(table.space.store())
    spec = JobSpec.for_hadoop(table.dest, "job", config=CONFIG)
    await _die_once_published(table, committer.attach_job(spec, storage_options={"store": store}), store)
    await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert table.files() == OLD


class _Own(ManifestCommitter):
    name = "own"


@pytest.fixture
def registered() -> Iterator[None]:
    register_committer(_Own)
    yield
    unregister_committer(_Own.name)


@pytest.mark.usefixtures("registered")
async def test_recover_where_the_committer_is_not_registered() -> None:
    """What the error says to do first works when it is done."""
    table = Table("local", OLD)
    await _set_up(table, _Own.name)
    unregister_committer(_Own.name)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="'own' is unknown in this process") as caught:
            await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
        assert "committer.committers.registry.register_committer" in caught.value.next_step
    assert [info.committer for info in await committer.list_jobs(table.dest, storage_options=table.options)] == ["own"]
    register_committer(_Own)
    report = await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert not report.success
    assert table.files() == OLD


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("joins", ["attach", "recover", "force", "rollback"])
@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_an_undecided_job_that_lost_its_setup_record_is_not_taken_for_one_of_hadoops(
    profile: str, joins: str, delivery: Delivery
) -> None:
    """Its choices are lost: as a job of Hadoop's it would add to what it was to replace."""
    table = Table(profile, OLD)
    job = await committer.open_job(
        table.dest, job_id="job", delivery=delivery, config=CONFIG, storage_options=table.options
    )
    async with job.task_attempt(task=0) as task, task.open("part-9") as file:
        await file.write(b"new")
    await job.close()
    table.remove(in_job(table, "job", "setup"))
    with pytest.raises(JobStateError, match="lost its setup record") as caught:
        if joins == "attach":
            async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as attached:
                await attached.commit()
        else:
            asked = {} if joins == "recover" else {joins: True}
            await committer.recover(table.dest, "job", storage_options=table.options, **asked)
    assert caught.value.outcome == "unchanged"
    assert table.files() == OLD
    assert f"`await committer.cleanup({table.dest!r}, job_id='job'" in caught.value.next_step
    await committer.cleanup(table.dest, job_id="job", storage_options=table.options)
    assert await committer.list_jobs(table.dest, storage_options=table.options) == []
    assert table.files() == OLD


async def test_a_job_that_lost_its_setup_record_is_joined_as_hadoops_by_who_says_so() -> None:
    table = Table("local", {})
    await _set_up(table)
    table.remove(in_job(table, "job", "setup"))
    spec = JobSpec.for_hadoop(table.dest, "job")
    async with committer.attach_job(spec, storage_options=table.options) as job:
        await job.commit(tasks=1)
    assert table.files() == {"part-0": b"new"}

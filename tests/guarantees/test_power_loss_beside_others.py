"""`durability="fsync"` with `file-v1`, whose jobs share directories: another job that ends removes those that are empty.

Who makes them again must force their names to the disk, or a committed task goes with them in a power loss (G7).
"""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig, Job, JobSpec
from committer.errors import CommitterError, TaskMissingError
from committer.flow.runtime import use_runtime
from committer.testing.faults import Call, FaultyStore
from tests.committers.file_places import HADOOP_JOB
from tests.guarantees.cluster import Impatient
from tests.guarantees.power import PowerStore, new_space

DURABLE = CommitterConfig(durability="fsync")
SHARED = "/data/out/_temporary/0"


class Disk:
    """A disk with two open jobs, of which each process has a connection of its own."""

    def __init__(self, seeds: int) -> None:
        self.store = PowerStore(new_space(), seeds)
        self.destination = self.store.space.path("data/out")

    async def open(self, job_id: str) -> Job:
        return await committer.open_job(
            self.destination, job_id=job_id, committer="file-v1", config=DURABLE, storage_options={"store": self.store}
        )

    async def run_task(self, job: Job, attempt: int) -> None:
        """An attempt of the job's one task, and the promise that it is committed."""
        options = {"store": self.store}
        async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options=options) as task:
            async with task.open("part-0") as file:
                await file.write(b"%d" % attempt)
        self.promise(f"attempt {attempt}")

    def promise(self, what: str) -> None:
        """Says that from now on this must survive."""
        self.store.promised.add(what)
        self.store.picture(f"{what} is promised")

    async def lost(self, job_id: str, promise: str, data: bytes) -> list[str]:
        """What goes wrong where power is lost after a promise, and the job is committed then."""
        wrong = []
        after = [picture for picture in self.store.pictures if promise in picture.promised]
        assert after
        for picture in after:
            for number, tree in enumerate(picture.trees):
                space = picture.space(tree)
                options = {"store": PowerStore(space, watched=False)}
                try:
                    job = await committer.attach_job(space.path("data/out"), job_id=job_id, storage_options=options)
                    await job.commit(tasks=1)
                    assert space.files()["/data/out/part-0"] == data
                except (AssertionError, CommitterError) as error:
                    wrong.append(f"{picture.moment}, {number}: {error!r}")
        return wrong

    def shared_stands(self) -> bool:
        return any(path.path == SHARED for path, _file in self.store.space.tree)


async def test_task_that_makes_the_shared_directories_again_is_committed_for_good() -> None:
    with use_runtime(Impatient(1)):
        disk = Disk(5)
        first, second = await disk.open("first"), await disk.open("second")
        await first.commit(tasks=0)
        assert not disk.shared_stands()
        await disk.run_task(second, 0)
        wrong = await disk.lost("second", "attempt 0", b"0")
    assert not wrong, wrong


@pytest.mark.parametrize("again", [False, True])
async def test_refused_commit_gives_tasks_back_for_good(again: bool) -> None:
    """Once with the shared directories removed in between; then a later attempt of the task replaces what it gave."""
    with use_runtime(Impatient(1)):
        disk = Disk(5)
        first, second = await disk.open("first"), await disk.open("second")
        await disk.run_task(second, 0)
        ended = False

        async def end_the_first(call: Call) -> None:
            nonlocal ended
            if not ended and call.operation == "rename_directory" and call.path.name == "tasks":
                ended = True
                await first.commit(tasks=0)
                assert not disk.shared_stands()

        driver = FaultyStore(disk.store)
        driver.before_call = end_the_first
        async with committer.attach_job(second.spec, storage_options={"store": driver}) as attached:
            with pytest.raises(TaskMissingError):
                await attached.commit(tasks=5)
        assert ended
        assert disk.shared_stands()
        if again:
            await disk.run_task(second, 1)
            wrong = await disk.lost("second", "attempt 1", b"1")
        else:
            disk.promise("refusal")
            wrong = await disk.lost("second", "attempt 0", b"0")
    assert not wrong, wrong


async def test_task_taken_over_from_an_earlier_application_attempt_stays_there() -> None:
    """A restarted driver would look in the attempt before its own alone."""
    with use_runtime(Impatient(1)):
        disk = Disk(5)
        space = disk.store.space
        space.write(f"{SHARED}/task_202611230000_0001_m_000000/part-0", b"0")
        await disk.store.make_directory(space.path("data/out/_temporary/1"), parents=True)
        disk.store = PowerStore(space, 5)
        spec = JobSpec.for_hadoop(disk.destination, HADOOP_JOB, 1, committer="file-v1", config=DURABLE)
        async with committer.attach_job(spec, storage_options={"store": disk.store}) as job:
            await job.recover_task(0, 0)
        disk.promise("recovery")
        wrong = await disk.lost(HADOOP_JOB, "recovery", b"0")
    assert not wrong, wrong

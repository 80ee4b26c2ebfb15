"""What errors advise is done to the letter, in the state that the error came from: every call in backticks is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.advice import blocking, call
from committer.errors import CommitterError
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash

THREE = {"a=1/part-0": b"0", "a=1/part-1": b"1", "part-2": b"2"}


class Table:
    """A destination with a space and a quote in its name, on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> set[str]:
        found = (path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file())
        return {name for name in found if not name.startswith("_")}

    async def open(self, **arguments: object) -> committer.Job:
        job = await committer.open_job(self.path, job_id="j", **arguments)
        for number, (name, data) in enumerate(THREE.items()):
            async with committer.open_task(job.spec, task=number) as task, task.open(name) as file:
                await file.write(data)
        return job

    async def die(self, fault: Fault, **arguments: object) -> None:
        """A driver that dies at a call of its commit."""
        job = await self.open(**arguments)
        await job.close()
        store = FaultyStore(LocalStore(), [fault])
        again = await committer.attach_job(
            self.path, job_id="j", storage_options={"store": store}, config=job.spec.config
        )
        with pytest.raises(SimulatedCrash):
            await again.commit(tasks=3)
        await store.inner.close()

    async def states(self) -> dict[str, str]:
        return {job.job_id: job.state for job in await committer.list_jobs(self.path)}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "it's a table")


def calls_in(error: CommitterError) -> list[str]:
    found = re.findall(r"`([^`]*)`", error.next_step)
    assert found, error.next_step
    return found


async def follow(advice: str, **known: object) -> object:
    """Does what stands between backticks, with what a reader knows."""
    # The store with faults was the dead driver's.
    advice = advice.replace(", storage_options={'store': ...}", "")
    scope: dict[str, object] = {"committer": committer, **known}
    name, assigned, expression = advice.partition(" = ")
    source = expression if assigned and name.isidentifier() else advice
    lines = f"async def work():\n    return {source}\n"
    exec(lines, scope)
    return await scope["work"]()  # type: ignore[operator]


def after_the_decision() -> Fault:
    """One file is published, two are not."""
    return Fault(kind="crash_before", operation="rename_file", path="part-1")


async def test_an_abort_of_a_decided_job(table: Table) -> None:
    for way, files in ((0, set(THREE)), (1, set())):
        await table.die(after_the_decision(), config={"io_concurrency": 1})
        async with committer.attach_job(table.path, job_id="j") as job:
            with pytest.raises(CommitterError) as caught:
                await job.abort()
        await follow(calls_in(caught.value)[way])
        assert table.files() == files
        assert await table.states() == {}
        for path in table.path.glob("**/part-*"):
            path.unlink()


async def test_a_recovery_of_a_job_that_no_driver_began_to_commit(table: Table) -> None:
    for delivery in ("listing", "message"):
        for way in (1, 2):
            await (await table.open(delivery=delivery)).close()
            with pytest.raises(CommitterError) as caught:
                await committer.recover(table.path, "j")
            attach, *ways = calls_in(caught.value)
            job = await follow(attach)
            await follow(ways[way - 1], job=job, N=3)
            await job.close()
            assert table.files() == (set(THREE) if way == 1 else set())
            assert await table.states() == {}
            for path in table.path.glob("**/part-*"):
                path.unlink()


async def test_a_commit_without_messages(table: Table) -> None:
    await (await table.open(delivery="message")).close()
    async with committer.attach_job(table.path, job_id="j") as job:
        with pytest.raises(CommitterError) as caught:
            await job.commit()
        await follow(calls_in(caught.value)[1], job=job, N=3)
    assert table.files() == set(THREE)


async def test_a_cleanup_of_a_decided_job(table: Table) -> None:
    for way, files in ((0, 3), (1, 0), (2, 1)):
        await table.die(after_the_decision(), config={"io_concurrency": 1})
        with pytest.raises(CommitterError) as caught:
            await committer.cleanup(table.path, job_id="j")
        await follow(calls_in(caught.value)[way])
        assert (len(table.files()), await table.states()) == (files, {})
        for path in table.path.glob("**/part-*"):
            path.unlink()


async def test_a_cleanup_of_an_outcome_that_is_kept(table: Table) -> None:
    await (await table.open(config={"outcome_kept": True})).commit(tasks=3)
    with pytest.raises(CommitterError) as caught:
        await committer.cleanup(table.path, job_id="j")
    [forced] = calls_in(caught.value)
    await follow(forced)
    assert (table.files(), await table.states()) == (set(THREE), {})


async def test_a_rollback_of_a_committed_job(table: Table) -> None:
    await table.die(Fault(kind="crash_before", operation="put", path="_SUCCESS"))
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j", rollback=True)
    await follow(calls_in(caught.value)[0])
    assert (table.files(), await table.states()) == (set(THREE), {})


async def test_a_recovery_of_an_aborted_job(table: Table) -> None:
    job = await table.open(config={"cleanup_skipped": True})
    await job.abort()
    await job.close()
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j")
    await follow(calls_in(caught.value)[0])
    assert (table.files(), await table.states()) == (set(), {})


async def test_a_file_that_is_nowhere(table: Table) -> None:
    await table.die(after_the_decision(), config={"io_concurrency": 1})
    [gone] = (table.path / "_temporary").rglob("part-1")
    data = gone.read_bytes()
    aside = table.path.parent / "aside"
    gone.rename(aside)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j")
    assert caught.value.outcome == "unknown"
    aside.rename(gone)
    await follow(calls_in(caught.value)[0])
    assert (table.files(), data) == (set(THREE), b"1")


@pytest.mark.parametrize("way", [0, 1])
async def test_a_neighbour_that_replaces_data(table: Table, way: int) -> None:
    """The owner died while it replaced data; a job that comes then is told how to end it."""
    await table.die(after_the_decision(), config={"conflict_mode": "replace", "io_concurrency": 1})
    other = await committer.open_job(table.path, job_id="other")
    async with other.task_attempt(task=0) as task, task.open("part-9") as file:
        await file.write(b"9")
    with pytest.raises(CommitterError) as caught:
        await other.commit()
    await follow(calls_in(caught.value)[way])
    await other.commit()
    await other.close()
    assert table.files() == {"part-9", *(THREE if way == 0 else ())}


async def test_roots_outside_the_destination_that_were_not_given(table: Table, tmp_path: Path) -> None:
    roots = (f"{tmp_path}/out side",)
    job = await committer.open_job(table.path, job_id="j", config=CommitterConfig(absolute_roots=roots))
    async with job.task_attempt(task=0) as task, task.open_absolute(f"{roots[0]}/part-0") as file:
        await file.write(b"0")
    await job.close()
    store = FaultyStore(LocalStore(), [Fault(kind="crash_before", operation="rename_file", path="out side/part-0")])
    dies = await committer.attach_job(
        table.path, job_id="j", config={"absolute_roots": roots}, storage_options={"store": store}
    )
    with pytest.raises(SimulatedCrash):
        await dies.commit()
    await store.inner.close()
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j")
    await follow(calls_in(caught.value)[0])
    assert Path(f"{roots[0]}/part-0").read_bytes() == b"0"


async def test_a_job_that_is_not_there_and_a_destination_without_success(table: Table) -> None:
    table.path.mkdir()
    with pytest.raises(CommitterError) as caught:
        await committer.attach_job(table.path, job_id="j")
    assert await follow(calls_in(caught.value)[0]) == []
    with pytest.raises(CommitterError) as caught:
        await committer.validate(table.path)
    assert await follow(calls_in(caught.value)[0]) == []


# -- the blocking API ------------------------------------------------------------------------------------------------


def test_blocking_callers_are_told_blocking_calls(tmp_path: Path) -> None:
    with pytest.raises(CommitterError) as caught:
        committer.sync.attach_job(tmp_path, job_id="j")
    [listed] = calls_in(caught.value)
    assert listed.startswith("committer.sync.list_jobs(")
    assert eval(listed, {"committer": committer}) == []
    job = committer.sync.open_job(tmp_path, job_id="j")
    with pytest.raises(CommitterError) as caught:
        committer.sync.recover(tmp_path, "j")
    attach, commit_it, abort_it = calls_in(caught.value)
    assert attach.startswith("job = committer.sync.attach_job(")
    again = eval(attach.partition(" = ")[2], {"committer": committer})
    assert (commit_it, eval(abort_it, {"job": again})) == ("job.commit(tasks=N)", None)
    again.close()
    job.close()


def test_a_call_leaves_out_what_is_not_said() -> None:
    assert call("recover", "/a b", "j", rollback=False, config=None) == "`await committer.recover('/a b', 'j')`"
    assert blocking("first `await committer.recover('/t', 'j', force=True)`, then await what comes") == (
        "first `committer.sync.recover('/t', 'j', force=True)`, then await what comes"
    )


async def test_a_rollback_whose_cleaning_fails(table: Table) -> None:
    """Nothing of the job is at the destination any more: a caller that is told `committed` goes on as if it were."""
    await table.die(after_the_decision(), config={"io_concurrency": 1})
    refused = Fault(kind="forbidden", operation="rename_directory", path=lambda path: path.name.startswith("j~"))
    store = FaultyStore(LocalStore(), [refused])
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table.path, "j", rollback=True, storage_options={"store": store})
    await store.inner.close()
    assert caught.value.outcome == "partial"
    assert table.files() == set()
    [advice] = calls_in(caught.value)
    await follow(advice)
    assert table.files() == set()
    assert await table.states() == {}

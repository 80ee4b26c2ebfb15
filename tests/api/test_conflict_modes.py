"""conflict_mode and superseded_scope: what happens to data that stands in the directories a job writes to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, JobReport
from committer.errors import CommitterError, DestinationBusyError, PreflightError, TargetExistsError
from committer.testing.faults import Call, Fault
from tests.places import Place

OLD = {
    "p=1/old-0": b"old", "p=1/old-1": b"old", "p=1/q=1/old": b"old", "p=2/old": b"old", "root": b"old",
    "_notes": b"meta", ".hidden": b"meta", "p=1/_hidden": b"meta", "_dir/x": b"meta", "_a=1/x": b"old",
    "p=1/_temporary_id=1/old": b"old", "_temporary=2/old": b"old", "__magic_id=3/_temporary_x/old": b"old",
}  # fmt: skip
NEW = {"p=1/new-0": b"new", "p=3/new-1": b"new"}


def fill(place: Place) -> None:
    for name, data in OLD.items():
        place.write(name, data)


def config(mode: str, **more: object) -> CommitterConfig:
    return CommitterConfig(conflict_mode=mode, **more)  # type: ignore[arg-type]


META = {"_notes": b"meta", ".hidden": b"meta", "_dir/x": b"meta"}
WHOLE = config("replace", superseded_scope="destination")


@pytest.mark.parametrize(
    ("chosen", "written", "stays"),
    [
        (config("append"), NEW, OLD),
        (config("replace"), {"new": b"new"}, META),
        (config("replace"), {}, OLD),
        (WHOLE, {"p=7/new": b"new"}, META),
        (WHOLE, {}, META),
        (
            config("replace", superseded_directories=("p=1",)),
            {},
            {name: data for name, data in OLD.items() if not name.startswith("p=1/")},
        ),
    ],
    ids=["append", "at the root", "nothing written", "the whole", "the whole by nothing", "named by nothing"],
)
async def test_what_stays(
    place: Place, chosen: CommitterConfig, written: dict[str, bytes], stays: dict[str, bytes]
) -> None:
    fill(place)
    await place.run_job(written, config=chosen)
    assert place.files() == {**stays, **written}
    if chosen is WHOLE and place.store.capabilities.directories:
        assert place.directories() == {"_dir", *(["p=7"] if written else [])}


async def test_fail_refuses_directories_that_hold_files(place: Place) -> None:
    fill(place)
    job = await place.open_job(config=config("fail"))
    await place.run_task(job, 0, NEW)
    plan = await job.plan()
    assert plan.conflicts == ["p=1 already holds files"]
    with pytest.raises(TargetExistsError, match="p=1 already holds files"):
        await job.commit()
    assert place.files() == OLD
    await job.abort()
    await place.run_job({"p=3/new": b"new", "p=4/q=1/new": b"new"}, config=config("fail"))
    assert place.files() == {**OLD, "p=3/new": b"new", "p=4/q=1/new": b"new"}


async def test_fail_at_the_root(place: Place) -> None:
    place.write("_notes", b"hidden names do not count")
    await place.run_job({"part-0": b"x"}, config=config("fail"))
    job = await place.open_job(config=config("fail"))
    await place.run_task(job, 0, {"part-1": b"x"})
    with pytest.raises(TargetExistsError, match="the destination already holds files"):
        await job.commit()
    await job.abort()
    assert "part-1" not in place.files()


async def test_replace_takes_the_directories_written_and_what_is_below(place: Place) -> None:
    fill(place)
    report = await place.run_job(NEW, config=config("replace"))
    expected = {**OLD, **NEW}
    for name in ("p=1/old-0", "p=1/old-1", "p=1/q=1/old", "p=1/_hidden", "p=1/_temporary_id=1/old"):
        del expected[name]
    assert place.files() == expected
    assert report.files_committed == 2
    assert place.temporary() == set()
    assert "p=1/q=1" not in place.directories()


async def test_what_jobs_may_own_is_spared_in_whatever_case(place: Place) -> None:
    """No record may name it, so a decision that did could not be carried out by another driver."""
    spared = {"p=1/_TEMPORARY/x": b"kept", "p=1/__Magic/x": b"kept"}
    for name, data in {**spared, "p=1/old": b"old"}.items():
        place.write(name, data)
    job = await place.open_job(job_id="job-1", config=config("replace"))
    await place.run_task(job, 0, {"p=1/new": b"new"})
    place.faults(Fault(kind="forbidden", operation="rename_file"))
    with pytest.raises(CommitterError):
        await job.commit()
    await place.recover("job-1")
    assert place.files() == {**spared, "p=1/new": b"new"}


NAMED = config("replace", superseded_directories=("p=1/q=1", "p=2", "p=5"))


async def test_replace_named_directories_written_to_or_not(place: Place) -> None:
    """As `INSERT OVERWRITE ... PARTITION` does: elsewhere the job only adds files."""
    fill(place)
    await place.run_job({"p=1/new": b"new", "p=1/q=1/new": b"new", "p=1/q=1/r=1/new": b"new"}, config=NAMED)
    expected = {**OLD, "p=1/new": b"new", "p=1/q=1/new": b"new", "p=1/q=1/r=1/new": b"new"}
    del expected["p=1/q=1/old"], expected["p=2/old"]
    assert place.files() == expected
    assert not place.directories() & {"p=2", "p=5"}
    assert place.temporary() == set()


async def test_a_target_outside_the_named_directories_is_refused(place: Place) -> None:
    """G14: what no one said is to be replaced is not."""
    fill(place)
    job = await place.open_job(config=NAMED)
    await place.run_task(job, 0, {"p=1/old-0": b"new", "p=2/old": b"new"})
    with pytest.raises(TargetExistsError, match="a file exists at p=1/old-0, where a file goes"):
        await job.commit()
    assert place.files() == OLD
    await job.abort()
    await place.run_job({"p=2/old": b"new"}, config=NAMED)
    assert place.files()["p=2/old"] == b"new"
    assert "p=1/q=1/old" not in place.files()


async def test_named_directories_hold_in_another_driver(place: Place) -> None:
    fill(place)
    job = await place.open_job(job_id="job-1", config=NAMED)
    await place.run_task(job, 0, {"p=2/new": b"new"})
    place.faults(Fault(kind="forbidden", operation="rename_file"))
    with pytest.raises(CommitterError):
        await job.commit()
    await place.recover("job-1")
    assert {"p=2/new", "p=1/old-0"} <= set(place.files())
    assert not set(place.files()) & {"p=2/old", "p=1/q=1/old"}


async def test_plan_of_a_refused_job_names_nothing_that_makes_room(place: Place) -> None:
    place.write("p=1/part-0", b"old")
    place.write("p=2", b"exists where a directory goes")
    job = await place.open_job()
    await place.run_task(job, 0, {"p=1/part-0": b"new", "p=2/part-0": b"new"})
    plan = await job.plan()
    assert (len(plan.conflicts), plan.replaced) == (2, [])
    await job.abort()


async def test_plan_of_a_replacing_job(place: Place) -> None:
    fill(place)
    job = await place.open_job(config=config("replace"))
    await place.run_task(job, 0, NEW)
    before = place.all_files()
    plan = await job.plan()
    assert (plan.files, plan.bytes, plan.tasks, plan.directories, plan.conflicts) == (2, 6, 1, ["p=3"], [])
    assert plan.replaced == ["p=1/_hidden", "p=1/_temporary_id=1/old", "p=1/old-0", "p=1/old-1", "p=1/q=1/old"]
    assert place.all_files() == before
    await job.abort()


@pytest.mark.parametrize("name", ["p=1/stranger", "p=1/old"])
async def test_what_appears_or_changes_in_a_replaced_directory_stays(place: Place, name: str) -> None:
    """A file that was not there when the old files were listed belongs to another job or program."""
    place.write("p=1/old", b"old")
    job = await place.open_job(config=config("replace"))
    await place.run_task(job, 0, {"p=1/new": b"new"})

    async def appear(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith("p=1/new"):
            place.write(name, b"a stranger's")

    place.store.before_call = appear
    await job.commit()
    place.store.before_call = None
    assert place.files() == {"p=1/new": b"new", name: b"a stranger's"}


async def test_plan_of_an_appending_job(place: Place) -> None:
    place.write("p=1/old", b"old")
    for delivery in ("listing", "message"):
        job = await place.open_job(delivery=delivery)
        message = await place.run_task(job, 0, {"p=1/new": b"new", "p=3/q=1/new": b"new"})
        late = await place.run_task(job, 1, {"x": b""})
        before = place.all_files()
        plan = await job.plan([message])
        assert (plan.files, plan.bytes, plan.tasks, plan.conflicts, plan.replaced) == (2, 6, 1, [], [])
        assert plan.directories == ["p=3", "p=3/q=1"]
        assert place.all_files() == before
        if delivery == "message":
            assert [name.rpartition("/")[2] for name in plan.stray] == [late.record.rpartition("/")[2]]
            assert (await job.plan()).tasks == 0
        else:
            assert (await job.plan()).tasks == 2
        assert place.all_files() == before
        await job.abort()


USED = config("fail", superseded_scope="destination")


@pytest.mark.parametrize("name", ["p=7/old", "elsewhere/deep/old", "_a=1/old"])
async def test_fail_refuses_a_destination_that_holds_data_anywhere(place: Place, name: str) -> None:
    place.write(name, b"old")
    place.write("_notes", b"hidden names do not count")
    job = await place.open_job(config=USED)
    await place.run_task(job, 0, NEW)
    assert (await job.plan()).conflicts == ["the destination already holds data"]
    with pytest.raises(TargetExistsError, match="the destination already holds data"):
        await job.commit()
    await job.abort()
    assert place.files() == {name: b"old", "_notes": b"hidden names do not count"}
    assert place.temporary() == set()


async def test_of_two_jobs_that_want_an_empty_destination_one_gets_it(place: Place) -> None:
    jobs = [await place.open_job(config=USED) for _ in range(2)]
    for number, job in enumerate(jobs):
        await place.run_task(job, 0, {f"p={number}/new": b"new"})
    ends = await asyncio.gather(*(job.commit() for job in jobs), return_exceptions=True)
    won = [number for number, end in enumerate(ends) if isinstance(end, JobReport)]
    assert len(won) <= 1
    assert all(
        isinstance(end, DestinationBusyError | TargetExistsError) for end in ends if not isinstance(end, JobReport)
    )
    assert place.files() == {f"p={number}/new": b"new" for number in won}
    for job in jobs:
        await job.abort()
    assert place.temporary() == set()


@pytest.mark.parametrize("scope", ["destination", "directories"])
async def test_old_files_are_listed_in_many_directories_at_once(place: Place, scope: str) -> None:
    """One after the other, as Spark does it, ten thousand partitions take minutes."""
    days = {f"year=1/month={month}/day={day}" for month in range(2) for day in range(3)}
    for day in days:
        place.write(f"{day}/old", b"old")
    job = await place.open_job(config=config("replace", superseded_scope=scope))
    await place.run_task(job, 0, {f"{day}/new": b"new" for day in days})
    waiting, all_wait = set(), asyncio.Event()

    async def meet(call: Call) -> None:
        name = str(call.path).partition(f"{job.spec.layout.destination}/")[2]
        if call.operation == "list" and name in days:
            waiting.add(name)
            if waiting == days:
                all_wait.set()
            await asyncio.wait_for(all_wait.wait(), 10)

    place.store.before_call = meet
    await job.commit()
    place.store.before_call = None
    assert waiting == days
    assert place.files() == {f"{day}/new": b"new" for day in days}


@pytest.mark.parametrize("leads_to", ["elsewhere", "p=1"])
async def test_a_named_directory_that_is_a_link_is_refused(tmp_path: Path, leads_to: str) -> None:
    """Files behind it belong to another directory: a job that writes nothing there must not empty that."""
    table, precious = tmp_path / "table", tmp_path / leads_to
    if leads_to == "p=1":
        precious = table / "p=1"
    await asyncio.to_thread(precious.mkdir, parents=True)
    (precious / "old").write_bytes(b"old")
    table.mkdir(exist_ok=True)
    (table / "p=3").symlink_to(precious)
    named = config("replace", superseded_directories=("p=3",))
    with pytest.raises(PreflightError, match="p=3 is a link") as caught:
        async with committer.open_job(table, config=named) as job:
            async with job.task_attempt(0) as task, task.open("p=2/new") as file:
                await file.write(b"new")
    assert caught.value.outcome == "unchanged"
    assert (precious / "old").read_bytes() == b"old"
    assert (table / "p=3").is_symlink()
    assert not (table / "p=2").exists()


async def test_a_named_directory_that_is_a_link_and_written_to_is_gone_through(tmp_path: Path) -> None:
    table, place = tmp_path / "table", tmp_path / "place"
    await asyncio.to_thread(table.mkdir)
    place.mkdir()
    (place / "old").write_bytes(b"old")
    (table / "p=3").symlink_to(place)
    async with committer.open_job(table, config=config("replace", superseded_directories=("p=3",))) as job:
        async with job.task_attempt(0) as task, task.open("p=3/new") as file:
            await file.write(b"new")
    assert [path.name for path in place.iterdir()] == ["new"]

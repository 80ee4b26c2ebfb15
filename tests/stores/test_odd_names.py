"""Objects in a bucket whose names no path can hold: an empty segment, `.` or `..`."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import PreflightError, TargetExistsError
from committer_testing.emulators.gcs import GcsEmulator
from committer_testing.emulators.gcs.preconditions import Preconditions
from tests.stores.gcs_bucket import ROOT, BucketChannel, emulator_fixture, requests, store_on

DEST = ROOT / "table"
PARTITIONS = CommitterConfig(conflict_mode="replace")
WHOLE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
# A name below the table, what the listing shows of it, and what deletes it.
ODD = [
    ("p=1//x", "p=1//", "--recursive"),
    ("p=1/./x", "p=1/./", "--recursive"),
    ("p=1/../y", "p=1/../", "--recursive"),
    ("p=1/.", "p=1/.", ""),
    ("p=1/deep//x//y", "p=1/deep//", "--recursive"),
]


emulator = emulator_fixture()


async def run(emulator: GcsEmulator, config: CommitterConfig | None = None, name: str = "p=1/new") -> None:
    async with committer.open_job(DEST.uri, config=config, storage_options={"endpoint": emulator.url}) as job:
        async with job.task_attempt(task=0) as task, task.open(name) as file:
            await file.write(b"new")
        await job.commit(tasks=1)


@pytest.mark.parametrize("config", [PARTITIONS, WHOLE], ids=["partitions", "whole"])
@pytest.mark.parametrize(("name", "shown", "recursive"), ODD)
async def test_an_overwrite_that_cannot_take_them_away_is_refused(
    emulator: GcsEmulator, name: str, shown: str, recursive: str, config: CommitterConfig
) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("p=1/old", b"old")
    await channel.write(name, b"old rows")
    with pytest.raises(PreflightError) as caught:
        await run(emulator, config)
    error = caught.value
    assert error.outcome == "unchanged"
    assert f"{DEST.uri}/{shown}" in error.message
    command = " ".join(filter(None, ["gcloud storage rm", recursive, f"gs://data{DEST.path}/{shown}"]))
    assert command in error.next_step.replace("'", "")
    assert await channel.files() == {"p=1/old": b"old", name: b"old rows"}
    # Followed to the letter.
    emulator.namespace.delete("data", f"{DEST.path[1:]}/{name}", Preconditions({}))
    await run(emulator, config)
    assert {name for name in await channel.files() if not name.startswith("_")} == {"p=1/new"}


async def test_every_place_of_them_is_named_and_the_first_few_steps(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    for number in range(5):
        await channel.write(f"p={number}//x", b"old rows")
    with pytest.raises(PreflightError) as caught:
        await run(emulator, WHOLE)
    assert len(caught.value.conflicts) == 5
    assert caught.value.next_step.count("gcloud storage rm") == 3


async def test_an_overwrite_of_other_partitions_leaves_them(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("p=2//x", b"other rows")
    await run(emulator, PARTITIONS)
    assert (await channel.files())["p=2//x"] == b"other rows"


async def test_an_append_leaves_them(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("p=1//x", b"old rows")
    await run(emulator)
    assert set(await channel.files()) >= {"p=1//x", "p=1/new"}


async def test_a_job_that_refuses_to_add_to_a_directory_counts_them(emulator: GcsEmulator) -> None:
    await BucketChannel(emulator, DEST).write("p=1//x", b"old rows")
    with pytest.raises(TargetExistsError, match="already holds files"):
        await run(emulator, CommitterConfig(conflict_mode="fail"))


async def test_a_directory_that_makes_room_for_a_file_is_refused_with_them_in_it(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("p=1/new//x", b"old rows")
    with pytest.raises(PreflightError, match="new//") as caught:
        await run(emulator, CommitterConfig(existing_target="replace"))
    assert "gcloud storage rm --recursive" in caught.value.next_step
    assert await channel.files() == {"p=1/new//x": b"old rows"}


@pytest.mark.parametrize("name", ["p=1//x", "/x", "./x", "p=1/../x"])
async def test_validate_reports_them(emulator: GcsEmulator, name: str) -> None:
    await run(emulator)
    options = {"endpoint": emulator.url}
    assert (await committer.validate(DEST.uri, storage_options=options)).ok
    await BucketChannel(emulator, DEST).write(name, b"more rows")
    report = await committer.validate(DEST.uri, storage_options=options)
    assert not report.ok
    assert report.extra == [f"{DEST.uri}/{name.rpartition('/')[0]}/"]


async def test_they_cost_no_call(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("a/b", b"1")
    await channel.write("a//c", b"2")
    store = store_on(emulator)
    emulator.conduct.log.clear()
    found = {status.path.path: status async for status in store.list(DEST / "a")}
    assert set(found) == {f"{DEST.path}/a/b", f"{DEST.path}/a//"}
    assert found[f"{DEST.path}/a//"].is_special
    assert requests(emulator) == ["list"]
    await store.close()


async def test_in_a_jobs_own_directory_they_are_in_nobodys_way(emulator: GcsEmulator) -> None:
    channel = BucketChannel(emulator, DEST)
    await channel.write("_temporary//x", b"1")
    options = {"endpoint": emulator.url}
    async with committer.open_job(DEST.uri, job_id="job", storage_options=options) as job:
        await channel.write(f"_temporary/{job.spec.unique_id}//x", b"1")
        await channel.write(f"_temporary/{job.spec.unique_id}/00/tasks/./x", b"1")
        async with job.task_attempt(task=0) as task, task.open("a") as file:
            await file.write(b"1")
    found = {name: data for name, data in (await channel.files()).items() if not name.startswith("_")}
    assert found == {"a": b"1"}


@pytest.mark.parametrize("name", ["x", "/x", "./x", "../x", "..", ".", "00//x", "00/tasks/../x"])
async def test_a_job_s_own_directory_goes_with_them(emulator: GcsEmulator, name: str) -> None:
    """A neighbour whose name begins as the odd one is resolved to stays."""
    channel = BucketChannel(emulator, DEST)
    options: dict[str, object] = {"endpoint": emulator.url}
    async with committer.open_job(DEST.uri, job_id="job", storage_options=options) as job:
        async with job.task_attempt(task=0) as task, task.open("new") as file:
            await file.write(b"new")
        for other in ("_temporary/x", "x", "_temporary//x"):
            await channel.write(other, b"other")
        await channel.write(f"_temporary/{job.spec.unique_id}/{name}", b"odd")
        await job.commit(tasks=1)
    assert set(await channel.files()) == {"_SUCCESS", "new", "x", "_temporary/x", "_temporary//x"}

"""Existing targets: never overwritten silently (G14)."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, OutcomeUnknownError, TargetExistsError
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.places import MemoryPlace, Place

REPLACE = CommitterConfig(existing_target="replace")


@pytest.mark.parametrize(("again", "says"), [("nightly", True), ("another", False)])
async def test_a_job_id_that_committed_there_before_is_told(place: Place, again: str, says: bool) -> None:
    """A user who runs a notebook's cell again is not advised just to remove the files of its first run."""
    await place.run_job({"a/part-0": b"1"}, job_id="nightly")
    async with place.open_job(job_id=again) as job:
        await place.run_task(job, 0, {"a/part-0": b"1"})
        with pytest.raises(TargetExistsError) as caught:
            await job.commit()
        told = (
            "_SUCCESS says that a job nightly committed there before: if that was this work, it is done, and this job is "
            "to be aborted, which changes nothing there; else "
        )
        assert caught.value.outcome == "unchanged"
        assert caught.value.next_step.startswith(told) is says
        assert "existing_target='replace'" in caught.value.next_step
        await job.abort()
    assert place.files() == {"a/part-0": b"1"}


async def test_a_job_that_ran_again_and_was_aborted_is_told_so(place: Place) -> None:
    """Leaving the block aborts it: what is to be done is done."""
    await place.run_job({"a/part-0": b"1"}, job_id="nightly")
    with pytest.raises(TargetExistsError) as caught:
        await place.run_job({"a/part-0": b"1"}, job_id="nightly")
    told = "if that was this work, it is done, and this job was aborted, which changed nothing there; else "
    assert told in caught.value.next_step
    assert place.files() == {"a/part-0": b"1"}
    assert place.temporary() == set()
    assert (await committer.validate(place.dest, storage_options=place.options)).ok


async def test_a_directory_that_another_job_runs_into_is_never_taken_away(place: Place) -> None:
    """Whatever this job may replace (G11): not the other job's records, nor what its tasks wrote."""
    place.write("part-0/deep/old", b"old")
    # What jobs that died long ago left of their entries counts no longer.
    dead = {f"part-0/{below}_temporary/.committing/x~0~y.append": b"" for below in ("", "deep/")}
    for name, data in dead.items():
        place.write(name, data)
    nested = await committer.open_job(f"{place.dest}/part-0/deep", job_id="other", storage_options=place.options)
    message = await place.run_task(nested, 0, {"x": b"x"})
    before = place.all_files()
    job = await place.open_job(job_id="mine", config=REPLACE)
    await place.run_task(job, 0, {"part-0": b"new"})
    where = f"{place.dest}/part-0/deep"
    with pytest.raises(TargetExistsError, match="part-0/deep/_temporary/other") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert f"{where}', 'other'" in caught.value.next_step
    assert (await job.plan()).conflicts == list(caught.value.conflicts)
    assert {name: data for name, data in place.all_files().items() if not name.startswith("_temporary")} == before
    await nested.commit([message])
    assert place.files()["part-0/deep/x"] == b"x"
    # What jobs leave that are over keeps no job away; where directories are not real it is not in the way, and stays.
    await job.commit()
    stays = {} if place.store.capabilities.directories else dead
    assert place.files() == {"part-0": b"new", **stays}


async def test_a_job_that_comes_to_a_directory_after_the_decision_is_not_taken_away(place: Place) -> None:
    place.write("part-0/old", b"old")
    job = await place.open_job(job_id="mine", config=REPLACE)
    await place.run_task(job, 0, {"part-0": b"new"})
    late = "part-0/_temporary/other/setup"

    async def appear(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision":
            place.write(late, b"{}")

    place.store.before_call = appear
    if not place.store.capabilities.directories:
        # A file and what lies below its name stand side by side: what is superseded goes, what came since stays.
        await job.commit()
        assert place.files() == {"part-0": b"new", late: b"{}"}
        return
    with pytest.raises(TargetExistsError, match="a job runs into") as caught:
        await job.commit()
    place.store.before_call = None
    assert place.files() == {"part-0/old": b"old", late: b"{}"}
    assert caught.value.outcome == "unchanged"


async def test_a_magic_directory_that_names_no_job_is_not_to_be_recovered(place: Place) -> None:
    place.write("part-0/__magic/job-1/x", b"{}")
    job = await place.open_job(job_id="mine", config=REPLACE)
    await place.run_task(job, 0, {"part-0": b"new"})
    with pytest.raises(TargetExistsError, match="part-0/__magic") as caught:
        await job.commit()
    assert f"delete {place.layout('x').destination}/part-0/__magic once no job uses it" in caught.value.next_step


@pytest.mark.parametrize("answer", ["given", "lost", "none: it died"])
async def test_a_job_that_comes_while_its_directory_is_looked_into_is_not_taken_away(place: Place, answer: str) -> None:
    if not place.store.capabilities.directories:
        pytest.skip("no directories")
    place.write("part-0/deep/old", b"old")
    job = await place.open_job(job_id="mine", config=REPLACE)
    await place.run_task(job, 0, {"part-0": b"new"})
    late = "part-0/deep/_temporary/other/setup"

    async def appear(call: Call) -> None:
        if call.operation == "rename_directory" and call.path.name == "part-0":
            place.write(late, b"{}")

    place.store.before_call = appear
    if answer != "given":
        kind = "lost" if answer == "lost" else "crash_after"
        place.faults(Fault(kind=kind, operation="rename_directory", path=lambda path: path.path.endswith("/part-0")))
    with pytest.raises(SimulatedCrash if answer.startswith("none") else TargetExistsError):
        await job.commit()
    if answer.startswith("none"):
        assert late not in place.all_files()
        with pytest.raises(TargetExistsError, match="a job runs into"):
            await committer.recover(place.dest, "mine", storage_options={"store": place.store.inner})
    assert place.files() == {"part-0/deep/old": b"old", late: b"{}"}


@pytest.mark.parametrize("profile", ["gcs", "s3"])
async def test_what_has_the_name_of_a_jobs_own_directory_stays_and_keeps_no_recovery_away(profile: str) -> None:
    """Decisions name no such file to be taken away, and the recoverer that finishes the job holds them to it."""
    place = MemoryPlace(profile)
    place.write("part-0/old", b"old")
    kept = dict.fromkeys(("part-0/_temporary", "part-0/__magic_job-x", "part-0/deep/__magic"), b"kept")
    for name, data in {**kept, "part-0/_temporary.bak": b"old"}.items():
        place.write(name, data)
    job = await place.open_job(job_id="mine", config=REPLACE)
    message = await place.run_task(job, 0, {"part-0": b"new"})
    place.faults(Fault(kind="forbidden", operation=place.publishes_by))
    with pytest.raises(CommitterError):
        await job.commit([message])
    assert (await place.recover("mine")).success
    assert place.files() == {"part-0": b"new", **kept}


@pytest.mark.parametrize("profile", ["gcs", "s3"])
async def test_a_lost_request_takes_nothing_from_below_a_files_name(profile: str) -> None:
    """A file and what lies below its name stand side by side: the driver that looks again is not kept away by it."""
    place = MemoryPlace(profile)
    # With the second, nothing can be rolled back: then even what came since the decision is replaced.
    for old in (["part-0/old"], ["part-0/old", "part-1"]):
        for name in old:
            place.write(name, b"old")
        job = await place.open_job(config=REPLACE)
        message = await place.run_task(job, 0, {"part-0": b"new", "part-1": b"new"})

        async def appear(call: Call) -> None:
            if call.operation == "put" and call.path.name == "decision":
                place.write("part-0/late", b"late")

        place.store.before_call = appear
        place.faults(
            Fault(kind="unanswered", operation=place.publishes_by, path=lambda path: path.path == "/table/part-0")
        )
        await job.commit([message])
        place.store.before_call = None
        assert place.files() == {"part-0": b"new", "part-1": b"new", "part-0/late": b"late"}
        for name in place.all_files():
            place.remove(name)


@pytest.mark.parametrize("name", ["d/part-0", "d/e/part-0"])
async def test_file_where_a_directory_must_go(place: Place, name: str) -> None:
    place.write("d", b"a file")
    job = await place.open_job(job_id="refused")
    await place.run_task(job, 0, {name: b"new"})
    with pytest.raises(TargetExistsError, match="where a directory goes"):
        await job.commit()
    await job.abort()
    assert place.files() == {"d": b"a file"}
    await place.run_job({name: b"new"}, config=REPLACE)
    assert place.files() == {name: b"new"}
    assert place.temporary() == set()


async def test_empty_directories_of_work_path_meet_a_file(tmp_path) -> None:
    from pathlib import Path

    from tests.places import DiskPlace

    place = DiskPlace(tmp_path)
    place.write("empty", b"a file")
    job = await place.open_job()
    async with job.task_attempt(task=0) as task:
        Path(task.work_path(), "empty").mkdir()
    with pytest.raises(TargetExistsError):
        await job.commit()
    assert place.files() == {"empty": b"a file"}


@pytest.mark.parametrize("when", ["preflight", "publish"])
async def test_target_that_appears_while_the_job_is_committed(place: Place, when: str) -> None:
    """Refused by the publish action itself; then the whole job is rolled back."""
    place.write("old", b"old")
    await place.run_job({"before": b"x"}, job_id="earlier")
    marker = place.read("_SUCCESS")
    job = await place.open_job(job_id="job-1", config=CommitterConfig(promote_directories=False))
    await place.run_task(job, 0, {f"d/part-{number}": b"new" for number in range(6)})

    async def appear(call: Call) -> None:
        if when == "publish" and call.operation == "rename_file" and str(call.destination).endswith("d/part-5"):
            place.write("d/part-5", b"stranger")
        if when == "preflight" and call.operation == "put" and call.path.name == "decision":
            place.write("d/part-5", b"stranger")

    place.store.before_call = appear
    with pytest.raises(TargetExistsError) as caught:
        await job.commit()
    place.store.before_call = None
    assert caught.value.outcome == "unchanged"
    assert place.files() == {"old": b"old", "before": b"x", "d/part-5": b"stranger"}
    assert place.read("_SUCCESS") == marker
    assert place.temporary() == set()
    with pytest.raises(CommitterError):
        await job.commit()
    await job.abort()
    assert place.files() == {"old": b"old", "before": b"x", "d/part-5": b"stranger"}


@pytest.mark.parametrize("replaced", [(), ("part-1",)], ids=["nothing recorded", "another target recorded"])
async def test_target_that_appears_while_the_job_replaces(place: Place, replaced: tuple[str, ...]) -> None:
    """Refused where a rollback could not put it back; replaced, as the job was told, where there is no rollback."""
    for name in replaced:
        place.write(name, b"old")
    job = await place.open_job(config=CommitterConfig(existing_target="replace", cleanup_skipped=True))
    await place.run_task(job, 0, {"part-0": b"new", "part-1": b"new"})

    async def appear(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith("/table/part-0"):
            if "part-0" not in place.files():
                place.write("part-0", b"stranger")

    place.store.before_call = appear
    if place.store.capabilities.hard_links or not replaced:
        with pytest.raises(TargetExistsError) as caught:
            await job.commit()
        assert caught.value.outcome == "unchanged"
        assert place.files() == {"part-0": b"stranger", **dict.fromkeys(replaced, b"old")}
        return
    report = await job.commit()
    place.store.before_call = None
    assert report.files_committed == 2
    assert place.files() == {"part-0": b"new", "part-1": b"new"}


async def test_target_that_appears_while_the_job_replaces_its_directory(place: Place) -> None:
    """It was not told to replace that file, and where old files cannot be kept it cannot go back: an operator must help."""
    place.write("p=1/part-0", b"old")
    job = await place.open_job(job_id="job-1", config=CommitterConfig(conflict_mode="replace"))
    await place.run_task(job, 0, {"p=1/part-0": b"new", "p=2/part-1": b"new"})

    async def appear(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision":
            place.write("p=2/part-1", b"stranger")

    place.store.before_call = appear
    with pytest.raises(TargetExistsError) as caught:
        await job.commit()
    place.store.before_call = None
    if place.store.capabilities.hard_links:
        assert caught.value.outcome == "unchanged"
        assert place.files() == {"p=1/part-0": b"old", "p=2/part-1": b"stranger"}
        return
    assert caught.value.outcome == "partial"
    assert place.read("p=2/part-1") == b"stranger"
    for _again in range(2):
        with pytest.raises(TargetExistsError, match="remove the cause") as caught:
            await place.recover("job-1")
        assert caught.value.path == str(place.layout("job-1").target("p=2/part-1"))
    place.remove("p=2/part-1")
    assert (await place.recover("job-1")).files_committed == 2
    assert place.files() == {"p=1/part-0": b"new", "p=2/part-1": b"new"}
    assert place.temporary() == set()


async def test_rolled_back_blocking_files_and_directories_come_back(place: Place) -> None:
    place.write("d", b"a file where a directory goes")
    if place.store.capabilities.directories:
        place.write("f/deep/file", b"a directory where a file goes")
    before = place.all_files()
    job = await place.open_job(job_id="job-1", config=REPLACE)
    await place.run_task(job, 0, {"d/part-0": b"new", "f": b"new", "g/part-1": b"new"})
    place.faults(Fault(kind="forbidden", operation="rename_file", path="g/part-1"))
    with pytest.raises(CommitterError):
        await job.commit()
    report = await place.recover("job-1", rollback=True, force=True)
    assert not report.success
    assert place.all_files() == before


async def test_what_replaced_target_becomes_while_we_look(place: Place) -> None:
    """The target was replaced by another program since the decision: as one that appeared, it is not the recorded one."""
    place.write("part-0", b"old")
    job = await place.open_job(job_id="job-1", config=REPLACE)
    await place.run_task(job, 0, {"part-0": b"new"})

    async def change(call: Call) -> None:
        if call.operation == "status" and call.path.path.endswith("table/part-0"):
            if [name for name in place.all_files() if name.endswith("/decision")] and place.read("part-0") == b"old":
                place.write("part-0", b"newer")

    place.store.before_call = change
    if place.store.capabilities.hard_links:
        with pytest.raises(TargetExistsError):
            await job.commit()
        assert place.files() == {"part-0": b"newer"}
        return
    await job.commit()
    place.store.before_call = None
    assert place.files() == {"part-0": b"new"}


async def test_source_that_vanished_after_the_decision_is_unknown(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x", "part-1": b"x"})

    async def vanish(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith("/table/part-1"):
            for name in place.all_files():
                if name.endswith("/part-1"):
                    place.remove(name)

    place.store.before_call = vanish
    with pytest.raises(OutcomeUnknownError) as caught:
        await job.commit()
    place.store.before_call = None
    assert caught.value.outcome == "unknown"
    assert "recover" in caught.value.next_step
    assert await place.states() == {"job-1": "committing"}
    assert "_SUCCESS" not in place.all_files()
    with pytest.raises(OutcomeUnknownError):
        await place.recover("job-1")
    await place.recover("job-1", rollback=True, force=True)
    assert place.all_files() == {}


async def test_directory_at_success_is_refused(place: Place) -> None:
    if not place.store.capabilities.directories:
        pytest.skip("no directories")
    place.write("_SUCCESS/x", b"odd")
    job = await place.open_job()
    await place.run_task(job, 0, {"part-0": b"x"})
    with pytest.raises(TargetExistsError, match="_SUCCESS"):
        await job.commit()
    assert place.files() == {"_SUCCESS/x": b"odd"}

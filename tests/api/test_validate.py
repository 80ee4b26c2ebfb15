"""validate(): a destination compared with what its `_SUCCESS` says."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig, ValidationReport
from committer.api import validate as validation
from committer.errors import JobNotFoundError, RecordError, ValidationError
from committer.records.success import decode_success, encode_success
from committer.testing.faults import Call
from tests.job_paths import in_job
from tests.places import Place


async def validate(place: Place) -> ValidationReport:
    return await committer.validate(place.dest, storage_options=place.options)


async def test_good_output(place: Place) -> None:
    await place.run_job({"a=1/part-0": b"abc", "part-1": b""}, job_id="job-1")
    report = await validate(place)
    assert report.ok
    assert (report.missing, report.wrong, report.extra) == ([], [], [])
    assert (report.job_id, report.files, report.complete) == ("job-1", 2, True)


async def test_missing_wrong_and_extra(place: Place) -> None:
    await place.run_job({"a=1/gone": b"abc", "a=1/cut": b"abc", "a=1/odd name%": b"abc", "good": b""})
    place.remove("a=1/gone")
    place.write("a=1/cut", b"ab")
    place.write("extra/file", b"x")
    place.write("_hidden", b"x")
    report = await validate(place)
    assert not report.ok
    layout = place.layout("job")
    assert report.missing == [(layout.destination / "a=1/gone").uri]
    assert len(report.wrong) == 1
    assert "cut: has 2 bytes, 3 were committed" in report.wrong[0]
    assert report.extra == [(layout.destination / "extra/file").uri]


async def test_directory_where_a_file_was(place: Place) -> None:
    await place.run_job({"part-0": b"abc"})
    place.remove("part-0")
    place.write("part-0/x", b"abc")
    report = await validate(place)
    assert not report.ok
    assert report.wrong or report.missing


async def test_more_files_than_success_names(place: Place) -> None:
    files = {f"p={number % 3}/part-{number:03}": b"x" * number for number in range(120)}
    await place.run_job(files)
    report = await validate(place)
    assert (report.ok, report.files, report.complete) == (True, 120, True)
    marker = decode_success(place.read("_SUCCESS"), source="")
    assert len(marker.filenames) == 100
    unnamed = next(name for name in files if not any(uri.endswith(name) for uri in marker.filenames))
    place.remove(unnamed)
    report = await validate(place)
    assert not report.ok
    assert "holds 119 files" in report.wrong[0]


async def test_extra_files_count_only_where_nothing_stood_before(place: Place) -> None:
    place.write("old", b"old")
    await place.run_job({"part-0": b"x"})
    report = await validate(place)
    assert (report.ok, report.extra) == (True, [])


@pytest.mark.parametrize("other", ["this engine's", "Hadoop's, of file output"])
async def test_a_job_that_came_and_ended_while_the_outcome_was_made_is_no_extra(place: Place, other: str) -> None:
    """However long that took: the job that was first at an empty destination does not claim all that is there.

    Hadoop's file output committers leave an empty `_SUCCESS`, and their files beside it.
    """
    job = await place.open_job(job_id="first")
    await place.run_task(job, 0, {"part-0": b"abc"})

    async def run_another(call: Call) -> None:
        if call.operation == "put" and call.path.name.startswith("outcome"):
            place.store.before_call = None
            if other == "this engine's":
                await place.run_job({"part-1": b"abc"}, job_id="second")
            else:
                place.write("part-1", b"abc")
                place.write("_SUCCESS", b"")

    place.store.before_call = run_another
    await job.commit()
    assert place.store.before_call is None
    report = await validate(place)
    # Of two that end at once `_SUCCESS` names the one that writes it last.
    assert (report.job_id, report.extra, report.ok) == ("first", [], True)


async def test_hidden_files_of_the_job_count(place: Place) -> None:
    await place.run_job({"_metadata": b"m", ".x": b"x", "p/_y": b"y", "part-0": b"x", "_dir/z": b"z"})
    report = await validate(place)
    assert report.ok, report
    place.remove("_metadata")
    report = await validate(place)
    assert len(report.missing) == 1


@pytest.mark.parametrize("hidden", ["the job's", "another's"])
async def test_hidden_names_where_success_names_not_all_files(place: Place, hidden: str) -> None:
    if hidden == "another's":
        place.write("_checkpoints/0", b"another's")
    own = {"_metadata": b"own"} if hidden == "the job's" else {"part-z": b"own"}
    await place.run_job({f"part-{number:03}": b"x" for number in range(101)}, own)
    report = await validate(place)
    assert report.ok, report
    place.remove("part-100")
    assert not (await validate(place)).ok


@pytest.mark.parametrize("below", ["", "p=1/"])
async def test_what_jobs_keep_for_themselves_is_no_output(place: Place, below: str) -> None:
    await place.run_job({f"{below}part-0": b"x"}, config=CommitterConfig(cleanup_skipped=True))
    place.write(below + in_job(place, "other", "00/tasks/attempt/part-1"), b"y")
    place.write(f"{below}__magic_job-other/job-other/00/tasks/attempt/__base/part-2", b"")
    report = await validate(place)
    assert (report.ok, report.files, report.extra) == (True, 1, [])


@pytest.mark.parametrize(
    "name", ["_temporary_id=1/x", "p=1/_temporary_id=1/x", "__magic=2/x", "_temporary=1/_temporary2/x"]
)
async def test_partitions_named_almost_as_what_jobs_keep_are_output(place: Place, name: str) -> None:
    await place.run_job({"p=1/part-0": b"x"})
    place.write(name, b"old")
    report = await validate(place)
    assert (report.ok, report.extra) == (False, [(place.layout("job").destination / name).uri])


async def test_no_job_completed(place: Place) -> None:
    place.write("part-0", b"x")
    with pytest.raises(JobNotFoundError) as caught:
        await validate(place)
    assert "list_jobs" in caught.value.next_step


async def test_markers_that_cannot_be_read(place: Place) -> None:
    for data in (b"", b"{", b"{}", b"[]"):
        place.write("_SUCCESS", data)
        with pytest.raises(RecordError) as caught:
            await validate(place)
        assert "can be compared with" in caught.value.next_step


async def test_marker_that_names_files_elsewhere(place: Place) -> None:
    await place.run_job({"part-0": b"x"})
    marker = decode_success(place.read("_SUCCESS"), source="")
    marker.filenames = [*marker.filenames, "file:/etc/passwd", "/etc/passwd", "memory://other/x"]
    marker.lengths = [*(marker.lengths or []), 1, 1, 1]
    place.write("_SUCCESS", encode_success(marker))
    place.store.calls.clear()
    report = await validate(place)
    assert len(report.wrong) == 3
    assert all("outside the destination" in wrong for wrong in report.wrong)
    assert not [call for call in place.store.calls if "passwd" in str(call.path)]


async def test_javas_marker_without_lengths(place: Place) -> None:
    await place.run_job({"part-0": b"x"})
    marker = decode_success(place.read("_SUCCESS"), source="")
    marker.lengths = None
    marker.diagnostics = {}
    place.write("_SUCCESS", encode_success(marker))
    assert (await validate(place)).ok
    place.write("part-0", b"changed")
    assert (await validate(place)).ok
    place.remove("part-0")
    assert not (await validate(place)).ok


# -- validate_output: the same before `_SUCCESS` -----------------------------------------------------------------

VALIDATING = CommitterConfig(validate_output=True)


@pytest.mark.parametrize("damage", ["deleted", "cut", "rewritten", "directory"])
async def test_damage_before_success_is_found(place: Place, damage: str) -> None:
    job = await place.open_job(job_id="job-1", config=VALIDATING)
    await place.run_task(job, 0, {"p/part-0": b"abc", "p/part-1": b"abc"})
    done = False

    async def spoil(call: Call) -> None:
        nonlocal done
        standing = place.files()
        if done or len(standing) < 2 or call.operation != "status":
            return
        done = True
        place.remove("p/part-1")
        if damage == "cut":
            place.write("p/part-1", b"ab")
        elif damage == "rewritten":
            place.write("p/part-1", b"xyz")
        elif damage == "directory":
            place.write("p/part-1/x", b"")

    place.store.before_call = spoil
    with pytest.raises(ValidationError) as caught:
        await job.commit()
    place.store.before_call = None
    assert done
    assert caught.value.outcome == "partial"
    assert "part-1" in str(caught.value)
    assert "recover" in caught.value.next_step
    assert "_SUCCESS" not in place.all_files()
    assert await place.states() == {"job-1": "committing"}


async def test_validated_commit_costs_one_look_a_file(place: Place) -> None:
    job = await place.open_job(config=VALIDATING)
    await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(20)})
    place.store.calls.clear()
    await job.commit()
    looks = [call for call in place.store.calls if call.operation == "status" and "/table/part-" in str(call.path)]
    assert len(looks) == 20


@pytest.mark.parametrize("marker", [b"", b" "], ids=["empty", "put back by a rollback on S3"])
async def test_an_empty_success_is_told_to_be_the_classic_committers(place: Place, marker: bytes) -> None:
    place.write("_SUCCESS", marker)
    with pytest.raises(RecordError, match="classic committer") as caught:
        await committer.validate(place.dest, storage_options=place.options)
    assert caught.value.outcome == "unchanged"
    assert caught.value.next_step.startswith("nothing can be compared with it")


async def test_a_report_names_some_and_counts_all(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MOST_NAMED", 3)
    files = {f"p={number % 3}/part-{number:03}": b"x" * number for number in range(30)}
    await place.run_job(files, config=CommitterConfig(file_list_directory=f"{place.dest}/_lists"))
    for name in list(files)[:5]:
        place.remove(name)
    for name in list(files)[5:11]:
        place.write(name, b"other than committed")
    for number in range(7):
        place.write(f"p=9/extra-{number}", b"x")
    report = await validate(place)
    assert not report.ok
    assert (report.missing_count, report.wrong_count, report.extra_count) == (5, 6, 7)
    gone = {(place.layout("any").destination / name).uri for name in list(files)[:5]}
    assert len(report.missing) == 3
    assert set(report.missing) < gone
    assert len(report.wrong) == 3
    assert all("has 20 bytes" in sentence for sentence in report.wrong)
    assert len(report.extra) == 3
    assert all("/p=9/extra-" in uri for uri in report.extra)


async def test_extra_files_that_go_meanwhile_are_not_told_of(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a report names: those that the second listing of the tree shows no more say that others may be gone."""
    monkeypatch.setattr(validation, "MOST_NAMED", 3)
    await place.run_job({"p=1/part-0": b"x"})
    for number in range(7):
        place.write(f"p=9/extra-{number}", b"x")
    listed = 0

    async def remove_extra(call: Call) -> None:
        nonlocal listed
        if call.operation in {"list", "list_tree"} and call.path == place.layout("any").destination:
            listed += 1
            if listed == 2:
                place.remove("p=9")

    place.store.before_call = remove_extra
    report = await validate(place)
    assert listed == 2
    assert (report.ok, report.extra, report.extra_count) == (True, [], 0)

"""A commit that is refused before the decision, by an operator whose driver is dead: the other end of the job is named.

An operator can change neither what the tasks wrote nor the job's choices.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer.records.job_state import Intent, encode_record
from tests.api.test_advice import calls_in, follow
from tests.cli.conftest import Run, typed
from tests.job_paths import INTENT, in_job
from tests.places import Place, make_place

KINDS = ["disk", "adls", "gcs", "s3"]


def leave(place: Place, delivery: str, *, begun: bool, files: tuple[str, ...] = ("a", "b")) -> None:
    """A job whose tasks committed and whose driver died, perhaps right before it decided."""

    async def work() -> None:
        job = await place.open_job(job_id="j", delivery=delivery)
        for number, name in enumerate(files):
            await place.run_task(job, number, {name: b"x"})
        await job.close()

    asyncio.run(work())
    if begun:
        intent = Intent(job_id="j", driver="dead", created="2026-11-21T00:00:00+00:00", tasks=len(files))
        place.write(in_job(place, "j", INTENT), encode_record(intent))


def in_the_way(place: Place) -> None:
    place.write("a", b"another program's")


def files_gone(place: Place) -> None:
    [source] = [name for name in place.all_files() if "/tasks/" in name and name.endswith("/a")]
    place.remove(source)


def record_of(place: Place) -> str:
    records = [name for name in place.all_files() if name.endswith(("-manifest.json", ".pendingset"))]
    return min(records)


def record_damaged(place: Place) -> None:
    place.write(record_of(place), b"{")


def record_replaced(place: Place) -> None:
    name = record_of(place)
    place.write(name, json.dumps({**json.loads(place.read(name)), "jobId": "another"}).encode())


def record_gone(place: Place) -> None:
    place.remove(record_of(place))


SPOILT: dict[str, Callable[[Place], None]] = {
    function.__name__: function for function in (in_the_way, files_gone, record_damaged, record_replaced, record_gone)
}


@pytest.mark.parametrize("begun", [False, True], ids=["open", "begun"])
@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_names_what_ends_the_job(run: Run, tmp_path: Path, kind: str, spoil: str, begun: bool) -> None:
    if (kind, spoil) == ("s3", "files_gone"):
        pytest.skip("there the files are in uploads, which nothing below the job's directory holds")
    place = make_place(kind, tmp_path)
    leave(place, "listing", begun=begun)
    SPOILT[spoil](place)
    words = ["recover", place.dest, "j"] if begun else ["commit", place.dest, "j", "--tasks", "2"]
    refused = run(*words, "--yes", "--output", "json")
    assert refused.code == 1, refused.err
    error = refused.json["error"]
    assert error["outcome"] == "unchanged"
    ends = [typed(one) for one in error["commands"] if "--rollback" in one or "abort" in one]
    assert ends, error["next_step"]
    assert run(*ends[-1], "--yes").code == 0
    assert place.files() == ({"a": b"another program's"} if spoil == "in_the_way" else {})
    assert place.temporary() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_record_that_is_not_the_one_of_its_message(run: Run, tmp_path: Path, kind: str) -> None:
    place = make_place(kind, tmp_path)
    leave(place, "message", begun=False)
    record_replaced(place)
    refused = run("commit", place.dest, "j", "--from-attempts", "--tasks", "2", "--yes", "--output", "json")
    assert refused.code == 1, refused.err
    [shown] = refused.json["error"]["commands"]
    assert run(*typed(shown), "--yes").code == 0
    assert (place.files(), place.temporary()) == ({}, set())


@pytest.mark.parametrize("begun", [False, True], ids=["open", "begun"])
def test_a_source_behind_a_link(run: Run, tmp_path: Path, begun: bool) -> None:
    place = make_place("disk", tmp_path)
    leave(place, "listing", begun=begun, files=("d/a",))
    [source] = in_job(tmp_path / "table", "j", "00/tasks").glob("*/d")
    source.rename(tmp_path / "elsewhere")
    source.symlink_to(tmp_path / "elsewhere")
    words = ["recover", place.dest, "j"] if begun else ["commit", place.dest, "j", "--tasks", "1"]
    refused = run(*words, "--yes", "--output", "json")
    [shown] = refused.json["error"]["commands"]
    assert run(*typed(shown), "--yes").code == 0
    assert (place.files(), place.temporary()) == ({}, set())
    assert (tmp_path / "elsewhere" / "a").read_bytes() == b"x"


def test_a_plan_that_would_be_refused_names_the_other_end(run: Run, tmp_path: Path) -> None:
    place = make_place("disk", tmp_path)
    leave(place, "listing", begun=False)
    in_the_way(place)
    shown = run("plan", place.dest, "j").out.splitlines()[-1].strip()
    assert run(*typed(shown), "--yes").code == 0
    assert place.temporary() == set()


@pytest.mark.parametrize("number", [0, 1], ids=["right number", "abort"])
def test_a_recovery_that_misses_tasks(run: Run, tmp_path: Path, number: int) -> None:
    place = make_place("disk", tmp_path)
    leave(place, "listing", begun=True)
    intent = Intent(job_id="j", driver="dead", created="2026-11-21T00:00:00+00:00", tasks=5)
    place.write(in_job(place, "j", INTENT), encode_record(intent))
    shown = run("recover", place.dest, "j", "--yes", "--output", "json").json["error"]["commands"]
    assert run(*typed(shown[number], 2), "--yes").code == 0
    assert set(place.files()) == ({"a", "b"} if number == 0 else set())


@pytest.mark.parametrize("record", ["setup", "opened", "decision", "outcome"])
def test_a_record_that_is_damaged(run: Run, tmp_path: Path, record: str) -> None:
    place = make_place("s3", tmp_path)
    leave(place, "listing", begun=False)
    place.write(in_job(place, "j", record), b"{")
    for words in (("recover", "--yes"), ("commit", "--yes"), ("abort", "--yes"), ("abort",), ("plan",)):
        refused = run(words[0], place.dest, "j", *words[1:], "--output", "json")
        assert refused.json["error"]["type"] == "RecordError"
        assert "what it did not publish, and the old files that it moved aside" in refused.json["error"]["next_step"]
        assert refused.json["error"]["commands"] == [f"committer cleanup {place.dest} --job j --force"]
    [row] = run("jobs", place.dest, "--output", "json").json["jobs"]
    assert "the old files that it moved aside" in row["attention"]
    ended = run(*typed(refused.json["error"]["commands"][0]), "--yes")
    assert (ended.code, "the old files that it moved aside" in ended.err) == (0, True)
    assert place.temporary() == set()


def test_the_blocking_list_names_blocking_calls(tmp_path: Path) -> None:
    place = make_place("disk", tmp_path)
    leave(place, "listing", begun=False)
    place.write(in_job(place, "j", "setup"), b"{")
    [info] = committer.sync.list_jobs(place.dest)
    assert "`committer.sync.cleanup(" in info.problem
    assert "await" not in info.problem


async def test_who_joins_a_job_is_told_and_who_set_it_up_aborts_it(tmp_path: Path) -> None:
    place = make_place("gcs", tmp_path)
    in_the_way(place)
    with pytest.raises(committer.errors.TargetExistsError) as caught:
        await place.run_job({"a": b"x"}, job_id="own")
    assert "`" not in caught.value.next_step
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"a": b"x"})
    await job.close()
    for asked in ("plan", "commit"):
        async with place.attach_job("j") as joined:
            if asked == "plan":
                assert (await joined.plan()).conflicts
                continue
            with pytest.raises(committer.errors.TargetExistsError) as caught:
                await joined.commit()
    await follow(calls_in(caught.value)[-1])
    assert place.temporary() == set()

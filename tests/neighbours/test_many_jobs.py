"""Any number of jobs run into one directory at once, and each touches only its own (G11)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.records.success import decode_success
from committer.testing.faults import Call, FaultyStore
from tests.job_paths import is_of_job
from tests.neighbours import forty, many
from tests.neighbours.meeting import Table

JOBS = 8


def names(job_id: str) -> dict[str, bytes]:
    return {f"p={number % 5}/{job_id}-{number}": job_id.encode() for number in range(20)}


async def run(dest: object, job_id: str, delivery: str, options: dict[str, object] | None = None) -> None:
    async with committer.open_job(dest, job_id=job_id, delivery=delivery, storage_options=options) as job:  # type: ignore[arg-type]

        async def task(number: int) -> None:
            async with job.task_attempt(number) as attempt:
                for name, data in list(names(job_id).items())[number::4]:
                    async with attempt.open(name) as file:
                        await file.write(data)

        await asyncio.gather(*[task(number) for number in range(4)])
        report = await job.commit(tasks=4)
        assert report.files_committed == 20


async def test_eight_jobs_in_one_process_on_a_disk(tmp_path: Path) -> None:
    dest = tmp_path / "table"
    await asyncio.gather(*[run(dest, f"job-{n}", "message" if n % 2 else "listing") for n in range(JOBS)])
    expected = {name: data for n in range(JOBS) for name, data in names(f"job-{n}").items()}
    found = {
        path.relative_to(dest).as_posix(): path.read_bytes()
        for path in dest.rglob("*")
        if path.is_file() and path.name != "_SUCCESS"
    }
    assert found == expected
    assert not (dest / "_temporary").exists()
    marker = decode_success((dest / "_SUCCESS").read_bytes(), source="")
    assert marker.jobId in {f"job-{n}" for n in range(JOBS)}


@pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])
async def test_eight_jobs_touch_only_their_own(profile: str) -> None:
    table = Table(profile, {"p=1/old": b"old"})
    strangers: list[str] = []

    async def one(number: int) -> None:
        job_id = f"job-{number}"
        store = FaultyStore(table.space.store())

        async def note(call: Call) -> None:
            changes = call.operation in (
                "put", "open_writer", "make_directory", "rename_file", "rename_directory", "delete_file",
                "delete_directory", "link_file", "delete_file_if", "delete_files", "create_upload", "put_part",
                "complete_upload", "abort_upload",
            )  # fmt: skip
            if not changes:
                return
            for path in (call.path, call.destination):
                if path is None:
                    continue
                name = path.path.removeprefix("/table").removeprefix("/")
                own = (
                    is_of_job(name, job_id)
                    or name.startswith(f"_temporary/.committing/{job_id}~")
                    or name in ("", "_SUCCESS", "_temporary", "_temporary/.committing")
                    or f"/{job_id}-" in name
                    or (call.operation == "make_directory" and not name.startswith("_"))
                )
                if not own:
                    strangers.append(f"{job_id}: {call}")

        store.before_call = note
        await run(table.dest, job_id, "message" if number % 2 else "listing", {"store": store})

    await asyncio.gather(*[one(number) for number in range(JOBS)])
    assert strangers == []
    expected = {name: data for n in range(JOBS) for name, data in names(f"job-{n}").items()}
    assert table.files() == {"p=1/old": b"old", **expected}
    assert {name for name in table.all_files() if name.startswith("_")} == {"_SUCCESS"}
    assert list(table.space.uploads) == []


async def test_some_abort_while_others_commit() -> None:
    table = Table("local")

    async def abort(job_id: str) -> None:
        with pytest.raises(ZeroDivisionError):
            async with committer.open_job(table.dest, job_id=job_id, storage_options=table.options) as job:
                async with job.task_attempt(0) as attempt:
                    async with attempt.open(f"p=1/{job_id}") as file:
                        await file.write(b"x")
                raise ZeroDivisionError

    await asyncio.gather(
        *[run(table.dest, f"job-{n}", "listing", table.options) for n in range(4)],
        *[abort(f"bad-{n}") for n in range(4)],
    )
    assert table.files() == {name: data for n in range(4) for name, data in names(f"job-{n}").items()}
    assert table.temporary() == set()


async def test_jobs_of_one_process_share_limits() -> None:
    """Eight jobs with room for four calls have four calls in flight, not thirty-two."""
    table = Table("local")
    config = CommitterConfig(io_concurrency=4)
    running = most = 0

    async def one(number: int) -> None:
        nonlocal running, most
        job_id = f"job-{number}"
        store = FaultyStore(table.space.store())

        async def note(_call: Call) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        store.before_call = note
        async with committer.open_job(
            table.dest, job_id=job_id, config=config, storage_options={"store": store}
        ) as job:
            async with job.task_attempt(0) as attempt:
                for name, data in names(job_id).items():
                    async with attempt.open(name) as file:
                        await file.write(data)

    await asyncio.gather(*[one(number) for number in range(JOBS)])
    assert most == 4
    assert len(table.files()) == 20 * JOBS


def start(program: ModuleType, *words: str) -> subprocess.Popen[str]:
    """A process that says when it is ready."""
    root = str(Path(many.__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, str(program.__file__), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
    )


def all_at_once(drivers: list[subprocess.Popen[str]], says: str) -> None:
    """Has them all go on at once, once all are ready, and waits for what each says at its end."""
    try:
        for driver in drivers:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ready\n"
        for driver in drivers:
            assert driver.stdin is not None
            driver.stdin.write("go\n")
            driver.stdin.flush()
        for driver in drivers:
            out, err = driver.communicate(timeout=300)
            assert out == says, err
    finally:
        for driver in drivers:
            if driver.poll() is None:
                driver.kill()
                driver.communicate()


def test_four_processes(tmp_path: Path) -> None:
    dest = tmp_path / "table"
    all_at_once([start(many, str(dest), f"job-{number}") for number in range(4)], "40\n")
    found = [path for path in dest.rglob("*") if path.is_file() and path.name != "_SUCCESS"]
    assert len(found) == 160
    assert all(path.read_text() == path.name.rsplit("-", 2)[0] for path in found)
    assert not (dest / "_temporary").exists()


def forty_jobs(uri: str, options: Mapping[str, object]) -> None:
    """Runs forty jobs at once, in eight processes, each id three times."""
    processes, jobs = 8, 5
    words = [(uri, str(number * jobs), str(jobs), json.dumps(options)) for number in range(processes)]
    all_at_once([start(forty, *each) for each in words], "done\n")


FORTY = {
    name: data
    for number in range(40)
    for turn in (1, 2)
    for name, data in forty.files_of(f"job-{number}", turn).items()
}


@pytest.mark.slow
def test_forty_jobs_whose_ids_are_used_again_on_a_disk(tmp_path: Path) -> None:
    dest = tmp_path / "table"
    forty_jobs(str(dest), {})
    found = {path.relative_to(dest).as_posix(): path.read_bytes() for path in dest.rglob("*") if path.is_file()}
    assert decode_success(found.pop("_SUCCESS"), source="").success
    assert found == FORTY
    assert not (dest / "_temporary").exists()


@pytest.mark.slow
async def test_forty_jobs_whose_ids_are_used_again_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    from tests.s3 import bucket, servers

    monkeypatch.setenv(bucket.KEY_ID_IS_IN, servers.KEY_ID)
    monkeypatch.setenv(bucket.KEY_IS_IN, servers.KEY)
    with servers.seaweedfs(tmp_path) as server:
        root = StorePath("s3", servers.BUCKET, "/table")
        await asyncio.to_thread(forty_jobs, root.uri, bucket.options_for(server))
        found = await bucket.BucketChannel(server.client, root).files()
        assert decode_success(found.pop("_SUCCESS"), source="").success
        assert found == FORTY
        assert await bucket.BucketChannel(server.client, root).uploads() == []

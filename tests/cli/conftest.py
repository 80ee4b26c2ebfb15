"""Commands run in this process or as a real one, and jobs in every state they can be found in."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.cli import main
from committer.paths import StorePath
from committer.records.job_state import Intent, encode_record
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.job_paths import INTENT, entry_of, in_job
from tests.places import Place

ROOT = Path(committer.__file__).parent.parent
JAVA = ROOT / "tests" / "fixtures" / "java-manifest-committer"
JAVA_JOB = "job_202401010000_0001"


@dataclass(frozen=True)
class Result:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert not [thread for thread in threading.enumerate() if thread.name == "committer-progress"]
        return Result(code, out, err)

    return call


def rows(run: Run, dest: object) -> dict[str, dict[str, Any]]:
    """Returns the rows of `committer jobs`."""
    shown = run("jobs", dest, "--output", "json")
    assert shown.code == 0, shown.err
    return {row["job_id"]: row for row in shown.json["jobs"]}


def typed(shown: object, tasks: int = 3) -> list[str]:
    """A command as an operator types it who knows how many tasks there are."""
    _, *words = shlex.split(str(shown))
    return [str(tasks) if word == "N" else word for word in words]


def die_in_commit(place: Place, files: dict[str, bytes], config: CommitterConfig | None = None) -> None:
    """Runs a job `j` of one task, whose driver dies before it publishes the first file."""

    async def die() -> None:
        job = await place.open_job(job_id="j", config=config)
        await place.run_task(job, 0, files)
        place.faults(Fault(kind="crash_before", operation=place.publishes_by))
        with pytest.raises(SimulatedCrash):
            await job.commit(tasks=1)

    asyncio.run(die())


def shell(*words: object, stdin: str | None = None, **environment: str) -> Result:
    """Runs a command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "committer.cli", *map(str, words)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


class Lake:
    """A destination on the disk, and jobs that exist there in some state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.temporary = directory / "_temporary"
        self._year = 2025

    def in_job(self, job_id: str, below: str = "") -> Path:
        """The directory of a job that this engine set up, or something in it."""
        return in_job(self.path, job_id, below)

    def files(self) -> list[str]:
        """Visible files, by relative name."""
        found = (path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file())
        return sorted(name for name in found if not name.startswith("_"))

    def committed(self, job_id: str = "done", **options: Any) -> None:
        """A job that committed three files of 6,000 bytes in all."""

        async def work() -> None:
            async with committer.open_job(self.path, job_id=job_id, **options) as job:
                await self._write(job)

        asyncio.run(work())

    def open(self, job_id: str = "open", **options: Any) -> list[bytes]:
        """A job whose tasks committed and whose driver is gone; gives its tasks' messages."""

        async def work() -> list[bytes]:
            job = await committer.open_job(self.path, job_id=job_id, **options)
            messages = await self._write(job)
            await job.close()
            return messages

        return asyncio.run(work())

    def begun(self, job_id: str = "begun") -> None:
        """A job whose driver died after it said that it would commit."""
        self.open(job_id)
        intent = Intent(job_id=job_id, driver="dead", created="2026-11-21T00:00:00+00:00")
        self.in_job(job_id, INTENT).write_bytes(encode_record(intent))
        self.entry(job_id, replaces=False)

    def decided(self, job_id: str = "decided", **options: Any) -> None:
        """A job whose driver died while it published the second file, one after the other."""
        options.setdefault("config", committer.CommitterConfig(io_concurrency=1))
        self._died(job_id, Fault(kind="crash_before", operation="rename_file", path="part-1.csv"), **options)

    def published(self, job_id: str, **options: Any) -> None:
        """A job whose driver died right before its outcome."""
        self._died(job_id, Fault(kind="crash_before", operation="put", path="/outcome"), **options)

    def unfinished(self, job_id: str = "unfinished") -> None:
        """A job whose driver died after its outcome and before `_SUCCESS`."""
        self._died(job_id, Fault(kind="crash_before", operation="put", path="_SUCCESS"))

    def aborted(self, job_id: str = "aborted") -> None:
        """A job whose driver died after its decision against it."""
        self._died(job_id, Fault(kind="crash_after", operation="put", path="/decision"), aborts=True)

    def prepare(self, state: str, job_id: str = "j") -> None:
        """A job in a state that is named as above; or none, one by message, one whose outcome is kept."""
        if state == "kept":
            self.committed(job_id, config=committer.CommitterConfig(outcome_kept=True))
        elif state == "message":
            self.open(job_id, delivery="message")
        elif state != "none":
            getattr(self, state)(job_id)

    def _died(self, job_id: str, fault: Fault, *, aborts: bool = False, **options: Any) -> None:
        self.open(job_id, **options)

        async def work() -> None:
            store = FaultyStore(LocalStore(), [fault])
            job = await committer.attach_job(self.path, job_id=job_id, storage_options={"store": store})
            with pytest.raises(SimulatedCrash):
                await (job.abort() if aborts else job.commit())

        asyncio.run(work())

    def entry(self, job_id: str, *, replaces: bool = True) -> Path:
        """An entry of a job that replaces all, or appends."""
        setup = self.in_job(job_id, "setup")
        known = json.loads(setup.read_text())["spec"]["setup"] if setup.exists() else "gone"
        name, data = entry_of(job_id, known, replaces=replaces)
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(data)
        return self.path / name

    def java(self, job_id: str = JAVA_JOB, attempt: str = "00") -> Path:
        """Task manifests as Java wrote them, made to speak of this destination, with the files they name."""
        directory = self.temporary / job_id / attempt
        (directory / "tasks").mkdir(parents=True)
        shutil.copytree(JAVA / "mr-job" / "manifests", directory / "manifests")
        for path in (directory / "manifests").iterdir():
            text = path.read_text().replace("/tmp/mc-fixture/dest", str(self.path))
            path.write_text(text)
            for entry in json.loads(text)["files"]:
                source = Path(StorePath.from_uri(entry["s"]).path)
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_bytes(b"x" * entry["z"])
        return directory

    async def _write(self, job: committer.Job) -> list[bytes]:
        messages = []
        # Jobs of one lake write different files.
        self._year += 1
        for number in range(3):
            async with job.task_attempt(task=number) as task:
                async with task.open(f"year={self._year}/part-{number}.csv") as file:
                    await file.write(b"x" * 1000 * (number + 1))
            assert task.task_commit is not None
            messages.append(task.task_commit.encode())
        return messages


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An absent destination."""
    return Lake(tmp_path / "lake")

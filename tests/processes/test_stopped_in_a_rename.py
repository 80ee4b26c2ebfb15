"""A driver that stands still between two system calls of one rename, while its job ends and a neighbour commits.

Where no rename can be told to replace nothing, a file moves by a second name and the removal of the first. What is left
of that, however late it comes, must not hit what another job put under either name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import committer
from committer import CommitterConfig
from committer.records.success import decode_success
from committer.stores.local import kernel_rename
from tests.job_paths import in_job
from tests.processes import stopping
from tests.processes.harness import environment, visible

MOST_STOPS = 60


class Driver:
    """Runs that stop half way, one after the other, in processes of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, stopping.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )

    def tell(self, what: object) -> str:
        """Tells it what to do; what became of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture(scope="module")
def drivers() -> Iterator[tuple[Driver, Driver]]:
    both = Driver(), Driver()
    yield both
    for driver in both:
        driver.close()


@pytest.fixture(
    params=[pytest.param(True, id="with the flag", marks=pytest.mark.slow), pytest.param(False, id="without the flag")]
)
def flag(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the kernel has the rename that replaces nothing, for the drivers and for this process."""
    if not request.param:
        monkeypatch.setattr(kernel_rename, "rename_no_replace", stopping.without_flag)
    return bool(request.param)


async def commit(table: Path, job_id: str, files: dict[str, str], **config: Any) -> None:
    job = await stopping.write(str(table), job_id, files, stopping.LocalStore(threads=1), CommitterConfig(**config))
    await job.commit(tasks=1)
    await job.close()


async def stops(
    drivers: tuple[Driver, Driver], tmp_path: Path, flag: bool, *, name: str, do: str = "commit", **told: Any
) -> AsyncIterator[tuple[Path, Driver]]:
    """Each moment at which a driver of job `a` can stand still around a call on `name`; it exists at the yield."""
    driver = drivers[0]
    for number in range(1, MOST_STOPS):
        table = tmp_path / f"table-{number}"
        await commit(table, "first", {"p=1/old": "old"})
        told = {"files": {"p=1/new": "new"}, "config": {}, **told}
        stop = [str(table / name), number]
        state = driver.tell({"destination": str(table), "job_id": "a", "do": do, "flag": flag, "stop": stop, **told})
        if state != "stopped":
            assert state == "ended 0"
            assert number > 1, "it never stopped"
            return
        yield table, driver
        shutil.rmtree(table)
    raise AssertionError("it never ended")


async def test_old_file_that_moves_aside(drivers: tuple[Driver, Driver], tmp_path: Path, flag: bool) -> None:
    async for table, driver in stops(drivers, tmp_path, flag, name="p=1/old", config={"conflict_mode": "replace"}):
        await committer.recover(table, "a")
        await commit(table, "k", {"p=1/old": "k"})
        assert driver.tell("go on") == "ended 0"
        assert visible(table) == {"p=1/new": b"new", "p=1/old": b"k"}


@pytest.mark.parametrize("later", ["append", "replace"])
async def test_marker_of_a_job_that_ended_meanwhile(
    drivers: tuple[Driver, Driver], tmp_path: Path, flag: bool, later: Literal["append", "replace"]
) -> None:
    before = {"p=1/old": b"old", "p=1/new": b"new"} if later == "append" else {}
    async for table, driver in stops(drivers, tmp_path, flag, name="_SUCCESS"):
        await committer.recover(table, "a")
        # A third job is under way when the driver goes on.
        under_way = await committer.open_job(table, job_id="under-way")
        await commit(table, "k", {"p=1/k": "k"}, conflict_mode=later, superseded_scope="destination")
        assert driver.tell("go on") == "ended 0"
        assert visible(table) == {**before, "p=1/k": b"k"}
        marker = decode_success((table / "_SUCCESS").read_bytes(), source="_SUCCESS")
        assert marker.jobId == "k"
        assert (await committer.validate(table)).missing == []
        await under_way.abort()
        await under_way.close()
        assert not (table / "_temporary").exists()


@pytest.mark.parametrize("files", [1, 5])
async def test_new_file_that_is_taken_back(
    drivers: tuple[Driver, Driver], tmp_path: Path, flag: bool, files: int
) -> None:
    """Five of them are published with their directory, so that they have no place to go back to."""
    new = {f"p=2/new-{number}": "new" for number in range(files)}
    config = {"promote_directories": files > 1}
    async for table, driver in stops(
        drivers, tmp_path, flag, name="p=2/new-0", do="roll back", files=new, config=config
    ):
        await committer.recover(table, "a", rollback=True, force=True)
        assert visible(table) == {"p=1/old": b"old"}
        await commit(table, "k", {"p=2/new-0": "k"})
        assert driver.tell("go on") == "ended 0"
        assert visible(table) == {"p=1/old": b"old", "p=2/new-0": b"k"}


# What the driver goes by when it lists the sealed directory, and where it renames it to.
SEALED = {"listing": "_temporary/a*/*/tasks-sealed/*/p=2", "rename": "p=2"}


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere directories are renamed whole on demand only"
)
@pytest.mark.parametrize("end", ["recover", "roll back", "roll back, commit another"])
@pytest.mark.parametrize("place", SEALED)
async def test_directory_that_is_renamed_as_a_whole(
    drivers: tuple[Driver, Driver], tmp_path: Path, place: str, end: str
) -> None:
    """Its driver stands still once it is sealed; meanwhile its task writes on by path, and another driver ends the job."""
    new = {f"p=2/new-{number}": "new" for number in range(3)}
    seen = 0
    async for table, driver in stops(drivers, tmp_path, True, name=SEALED[place], files=new):
        [*sealed] = table.glob(SEALED["listing"])
        complete = {"p=1/old": b"old"} | dict.fromkeys(new, b"new")
        if sealed:
            seen += 1
            written = in_job(table, "a", "00/tasks") / sealed[0].parent.name / "p=2"
            written.mkdir(parents=True)
            (written / "stray").write_text("stray")
            await committer.recover(table, "a", rollback=end != "recover")
            if end != "recover":
                complete = {"p=1/old": b"old"}
                assert not (table / "p=2").exists()
            assert visible(table) == complete
        if sealed and end == "roll back, commit another":
            await commit(table, "k", {"p=2/new-0": "k"})
            complete["p=2/new-0"] = b"k"
        assert driver.tell("go on") == "ended 0"
        assert visible(table) == complete
    assert seen


async def test_old_file_that_comes_back(drivers: tuple[Driver, Driver], tmp_path: Path, flag: bool) -> None:
    async for table, driver in stops(
        drivers, tmp_path, flag, name="p=1/old", do="roll back", config={"conflict_mode": "replace"}
    ):
        await committer.recover(table, "a", rollback=True, force=True)
        assert visible(table) == {"p=1/old": b"old"}
        await commit(table, "k", {"p=1/old": "k"}, existing_target="replace")
        assert driver.tell("go on") == "ended 0"
        assert visible(table) == {"p=1/old": b"k"}

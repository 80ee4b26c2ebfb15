"""docs/recovery.md at night: each command of its table, typed as written at a job in that state, ends the job."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.cli.conftest import ROOT, Lake, Run

PAGE = ROOT / "docs" / "recovery.md"


def _rolled_back(lake: Lake) -> None:
    lake.decided("j")

    async def work() -> None:
        store = FaultyStore(LocalStore(), [Fault(kind="crash_after", operation="put", path="outcome")])
        with pytest.raises(SimulatedCrash):
            await committer.recover(lake.path, "j", rollback=True, storage_options={"store": store})

    asyncio.run(work())


def _aborted(lake: Lake) -> None:
    lake.open("j", config=CommitterConfig(cleanup_skipped=True))
    committer.sync.attach_job(lake.path, job_id="j").abort()


def _damaged(lake: Lake) -> None:
    lake.open("j")
    lake.in_job("j", "setup").write_text("{")


STATES: dict[str, tuple[Callable[[Lake], object], list[int]]] = {
    "`open`, its driver is dead, its N tasks are done": (lambda lake: lake.open("j"), [3]),
    "the same, by message (all of Spark's writes)": (lambda lake: lake.open("j", delivery="message"), [3]),
    "`open`, its driver is dead, tasks are missing": (lambda lake: lake.open("j"), [0]),
    "`open`, a driver began to commit it": (lambda lake: lake.begun("j"), [3, 0]),
    "`committing`": (lambda lake: lake.decided("j"), [3, 0]),
    "`committed`, its last steps were not done": (lambda lake: lake.unfinished("j"), [3]),
    "`committed`, not cleaned up": (
        lambda lake: lake.committed("j", config=CommitterConfig(cleanup_skipped=True)), [3],
    ),
    "`committed`, kept for a stream or a rerun": (
        lambda lake: lake.committed("j", config=CommitterConfig(outcome_kept=True)), [3],
    ),
    "`rolled-back`, its last steps were not done": (_rolled_back, [0]),
    "`aborted`, not cleaned up": (_aborted, [0]),
    "`unknown`, a record cannot be read": (_damaged, [0]),
}  # fmt: skip


def rows() -> dict[str, list[str]]:
    """The commands of the table, by what it says that `committer jobs` says."""
    text = PAGE.read_text(encoding="utf-8").partition("| `committer jobs` says |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)
    return {state: re.findall(r"`(committer [^`]+)`", said) for state, said in cells}


def test_every_row_is_tried() -> None:
    found = rows()
    assert {state: len(commands) for state, commands in found.items()} == {
        state: len(files) for state, (_, files) in STATES.items()
    }


@pytest.mark.parametrize(
    ("state", "number"), [(state, n) for state, (_, files) in STATES.items() for n in range(len(files))]
)
def test_the_command_ends_the_job(run: Run, tmp_path: Path, state: str, number: int) -> None:
    lake = Lake(tmp_path / "flights")
    prepare, files = STATES[state]
    prepare(lake)
    [row] = run("jobs", lake.path, "--output", "json").json["jobs"]
    said = run("jobs", lake.path).out
    assert row["state"] == (re.findall(r"^`([a-z-]+)`", state) or ["open"])[0]
    typed = rows()[state][number].replace("/data/flights", shlex.quote(str(lake.path)))
    words = [{"JOB": "j", "N": "3"}.get(word, word) for word in shlex.split(typed)[1:]]
    assert run(*words, "--yes").code == 0
    assert len(lake.files()) == files[number]
    assert run("jobs", lake.path, "--output", "json").json["jobs"] == []
    advised = [row["next_step"], row["otherwise"], *row["if_dead"]]
    if row["otherwise"]:
        assert shlex.join(["committer", *words]) == advised[number]
        assert f"or, to end it with nothing of it published:\n  {row['otherwise']}\n" in said
    if "kept" not in state:
        # What the page says is what `jobs` itself shows.
        assert shlex.join(["committer", *words]).replace("--tasks 3", "--tasks N") in advised

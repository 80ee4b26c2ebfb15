"""One run: a job that meets one fault, what others do, and whether all ended as it must."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import committer
import committer.operations  # else each run imports it
from committer.errors import CommitterError, JobNotFoundError, JobStateError, JobUndecidedError
from committer.flow.runtime import use_runtime
from tests.disk_sweep import life, mounts
from tests.disk_sweep.account import Tree, Wrong, left, look, put, tell
from tests.disk_sweep.calls import Gate, install

OTHERS: Final = ("recover", "roll back", "abort", "clean up", "force", "replace")
LONGEST_S: Final = 60
_OLD_MARKER: Final = '{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1", "jobId": "old", "success": true}'


class Case(NamedTuple):
    """One run, by name: `append/plain/once ENOSPC/17`.

    Attributes:
        flavour: Of the job.
        disk: What the disk lacks.
        fault: ``once``, ``on`` or ``late`` and an error; ``before`` or ``after``; ``stop`` and what others do meanwhile.
        number: At which system call.
    """

    flavour: str
    disk: str
    fault: str
    number: int

    def __str__(self) -> str:
        return "/".join(str(part) for part in self)

    @classmethod
    def of(cls, text: str) -> Self:
        flavour, disk, fault, number = text.split("/")
        return cls(flavour, disk, fault, int(number))

    @property
    def what(self) -> str:
        return self.fault.partition(" ")[0]

    @property
    def detail(self) -> str:
        return self.fault.partition(" ")[2]


class Told(NamedTuple):
    """What a process said of its end: nothing when it died."""

    kind: str = "died"
    outcome: str = ""
    text: str = ""


class Run:
    """One run, in a directory of its own."""

    def __init__(self, case: Case, root: str) -> None:
        self.case = case
        self._disk = os.path.join(root, "disk")
        self._mounted = case.what in {"full", "read-only"}
        self.table = os.path.join(self._disk, "table")
        self._answer = os.path.join(root, "answer")
        self.before = life.before(case.flavour)
        self.after = life.add_job(self.before, case.flavour)
        self.history: list[str] = []

    def go(self) -> None:
        """Runs it.

        Raises:
            Wrong: Something is not as it must be.
        """
        if self._mounted:
            mounts.mount(self._disk)
        try:
            self._go()
        finally:
            if self._mounted:
                mounts.unmount(self._disk)

    def _go(self) -> None:
        put(self.table, {**self.before, "_SUCCESS": _OLD_MARKER})
        life.use_disk(self.case.disk)
        victim = self._start()
        stopped = self.case.what == "stop"
        other = Told("none")
        if stopped and os.WIFSTOPPED(os.waitpid(victim, os.WUNTRACED)[1]):
            other = asyncio.run(self._other())
            os.kill(victim, signal.SIGCONT)
            _pid, status = os.waitpid(victim, 0)
        elif stopped:
            raise Wrong("the job never made that call")
        else:
            _pid, status = os.waitpid(victim, 0)
        if self._mounted:
            mounts.end(self.case.what, self._disk)
        told = self._told(status)
        with use_runtime(life.Impatient()):
            asyncio.run(self._settle(told, other))

    def trace(self) -> dict[str, Any]:
        """Every system call of the job that meets no fault, and the modules it imported."""
        put(self.table, {**self.before, "_SUCCESS": _OLD_MARKER})
        life.use_disk(self.case.disk)
        os.waitpid(self._start(), 0)
        answer = json.loads(Path(self._answer).read_text())
        if answer["kind"] != "done":
            raise Wrong(f"the job without a fault failed: {answer}")
        return {"seen": answer["seen"], "modules": answer["modules"]}

    # -- the job ------------------------------------------------------------------------------------------------

    def _start(self) -> int:
        child = os.fork()
        if child:
            return child
        try:
            signal.alarm(LONGEST_S)
            error = self.case.detail if self.case.what in {"once", "on", "late"} else ""
            gate = Gate(self.case.number, self.case.what, error)
            if self._mounted:
                gate.trouble = functools.partial(mounts.begin, self.case.what, self._disk)
            write = Path(self._answer).write_text
            install(gate)
            told = asyncio.run(self._guarded(life.run(self.table, self.case.flavour)))
            number = self.case.number
            at = gate.seen[number - 1] if 0 < number <= len(gate.seen) else ("", "")
            traced = {"seen": gate.seen, "modules": list(sys.modules)} if not self.case.number else {}
            write(json.dumps({**told._asdict(), "at": at, **traced}))
        finally:
            os._exit(0)

    async def _guarded(self, work: Any) -> Told:
        try:
            with use_runtime(life.Impatient()):
                await work
        except CommitterError as error:
            return Told(type(error).__name__, error.outcome, str(error))
        except Exception as error:
            return Told("untyped", "", "".join(traceback.format_exception(error)))
        return Told("done")

    def _told(self, status: int) -> Told:
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGALRM:
            raise Wrong(f"the job did not end in {LONGEST_S} s")
        if not os.path.exists(self._answer):
            if code != 9:
                raise Wrong(f"the job ended with {code}")
            return Told()
        answer = json.loads(Path(self._answer).read_text())
        self.history.append(f"call {self.case.number}: {' '.join(answer['at'])}")
        return Told(answer["kind"], answer["outcome"], answer["text"])

    # -- others -------------------------------------------------------------------------------------------------

    async def _other(self) -> Told:
        what, options = self.case.detail, life.options()
        work: dict[str, Any] = {
            "recover": lambda: committer.recover(self.table, life.JOB, storage_options=options),
            "roll back": lambda: committer.recover(self.table, life.JOB, rollback=True, storage_options=options),
            "abort": lambda: self._abort(options),
            "clean up": lambda: committer.cleanup(self.table, older_than=0, storage_options=options),
            "force": lambda: committer.cleanup(self.table, job_id=life.JOB, force=True, storage_options=options),
            "replace": lambda: life.run_neighbour(self.table),
        }
        told = await self._guarded(work[what]())
        self.history.append(f"{what}: {told.kind} {told.outcome} {told.text}")
        if told.kind == "untyped":
            raise Wrong(f"{what}: {told.text}")
        return told

    async def _abort(self, options: dict[str, Any]) -> None:
        async with committer.attach_job(self.table, job_id=life.JOB, storage_options=options) as job:
            await job.abort()

    # -- the end ------------------------------------------------------------------------------------------------

    async def _settle(self, told: Told, other: Told) -> None:
        self.history.append(f"the job: {told.kind} {told.outcome} {told.text}")
        if told.kind == "untyped":
            raise Wrong("an error that is none of ours")
        tree, marker = look(self.table)
        forced = self.case.detail == "force"
        if not forced:
            self._check_between(tree, marker)
        state = await self._state()
        self.history.append(f"state: {state}")
        if not (forced or self.case.what == "stop"):
            self._check_told(told, tree, marker, state)
        reported = told.kind == "done" or told.outcome == "committed"
        await self._end(state, reported=reported)
        tree, marker = look(self.table)
        if forced:
            self._check_forced(tree, marker, told)
        else:
            self._check_end(tree, marker, committed=reported, other=other)
        await self._check_litter()
        if not forced and marker == "old":
            await self._check_again()

    async def _state(self) -> str:
        jobs = await committer.list_jobs(self.table, storage_options=life.options())
        return next((job.state for job in jobs if job.job_id == life.JOB), "gone")

    def _check_between(self, tree: Tree, marker: str) -> None:
        """At any moment: nothing torn, nothing of a neighbour's lost."""
        new = {**self.after, "p=1/r": "r"}
        for name, text in tree.items():
            if text not in (self.before.get(name), new.get(name)):
                raise Wrong(f"{name} holds {text!r}")
        for name in self.before.keys() & self.after.keys():
            if name not in tree and not (self.case.detail == "replace" and name.startswith("p=1/")):
                raise Wrong(f"{name} is lost")
        if marker == life.JOB and self.case.detail != "replace" and tree != self.after:
            raise Wrong(f"_SUCCESS of the job, but {tell(tree, self.after)}")

    def _check_told(self, told: Told, tree: Tree, marker: str, state: str) -> None:
        """What an error says of its outcome is true."""
        if told.kind == "died":
            return
        if told.kind == "done" or told.outcome == "committed":
            if tree != self.after:
                raise Wrong(f"told committed: {tell(tree, self.after)}")
            if told.kind == "done" and marker != life.JOB:
                raise Wrong(f"told committed, but _SUCCESS names {marker!r}")
        if told.outcome == "unchanged":
            if tree != self.before or marker != "old":
                raise Wrong(f"told unchanged: {tell(tree, self.before)}, _SUCCESS names {marker!r}")
            if state in {"committing", "committed"}:
                raise Wrong(f"told unchanged, but the job is {state}")
        if told.outcome == "partial" and state == "gone":
            raise Wrong("told partial, but nothing is left to recover")

    async def _end(self, state: str, *, reported: bool) -> None:
        """Ends the job as its state asks for."""
        number, options = self.case.number, life.options()
        try:
            if state == "committing" and number % 2:
                await self._roll_back(options)
            elif state == "unknown" and reported:
                # The last delete of its directory failed: nothing is left of it but that.
                await committer.cleanup(self.table, job_id=life.JOB, storage_options=options)
            elif state == "unknown":
                # Not even its setup record was written: the next job of that id takes its place.
                await life.run(self.table, self.case.flavour)
            elif state == "open" and number % 3 == 0:
                await self._abort(options)
            elif state in {"open", "aborted"} and number % 3 == 1:
                await committer.cleanup(self.table, job_id=life.JOB, storage_options=options)
            else:
                await committer.recover(self.table, life.JOB, storage_options=options)
        except JobUndecidedError:
            await self._abort(options)
        except JobNotFoundError as error:
            self.history.append(f"end: {error}")
            if state != "gone" and reported:
                await committer.cleanup(self.table, job_id=life.JOB, storage_options=options)
            elif state != "gone":
                await life.run(self.table, self.case.flavour)
        except JobStateError as error:
            self.history.append(f"end: {error}")

    async def _roll_back(self, options: dict[str, Any]) -> None:
        force = self.case.disk == "no flag"
        try:
            await committer.recover(self.table, life.JOB, rollback=True, force=force, storage_options=options)
        except JobStateError as error:
            # Some jobs only go forward.
            self.history.append(f"end: {error}")
            await committer.recover(self.table, life.JOB, storage_options=options)

    def _check_end(self, tree: Tree, marker: str, *, committed: bool, other: Told) -> None:
        neighbour = self.case.detail == "replace"
        alone: list[tuple[Tree, str]] = [(self.after, life.JOB)]
        both = [
            (life.add_neighbour(self.after), life.NEIGHBOUR),
            (life.add_job(life.add_neighbour(self.before), self.case.flavour), life.JOB),
        ]
        if not committed:
            alone.append((self.before, "old"))
            both.append((life.add_neighbour(self.before), life.NEIGHBOUR))
        ends = alone if not neighbour or other.outcome == "unchanged" else both
        if neighbour and other.kind != "done" and other.outcome != "unchanged":
            ends = [*alone, *both]
        if (tree, marker) not in ends:
            told = "; or ".join(f"{tell(tree, wanted)}, _SUCCESS of {name}" for wanted, name in ends)
            raise Wrong(f"in the end, _SUCCESS of {marker!r}: {told}")

    def _check_forced(self, tree: Tree, marker: str, told: Told) -> None:
        """A cleanup by force may leave a part of what a living driver published, but nobody may call that whole."""
        if tree.get("other/neighbour") != "neighbour":
            raise Wrong("the neighbour's file is lost")
        whole = tree == self.after
        if marker == life.JOB and not whole:
            raise Wrong(f"_SUCCESS of the job, but {tell(tree, self.after)}")
        if told.kind == "done" and not whole:
            raise Wrong(f"told committed, but {tell(tree, self.after)}")
        if told.outcome == "unchanged" and tree != self.before:
            raise Wrong(f"told unchanged, but {tell(tree, self.before)}")

    async def _check_litter(self) -> None:
        options = life.options()
        report = await committer.cleanup(self.table, older_than=0, storage_options=options)
        if self.case.detail == "force" and report.kept:
            with suppress(JobNotFoundError):
                await committer.cleanup(self.table, job_id=life.JOB, force=True, storage_options=options)
        elif report.kept:
            raise Wrong(f"cleanup kept {report.kept}")
        rest = left(self.table)
        if rest:
            raise Wrong(f"left in _temporary: {rest}")
        probes = [name for name in os.listdir(self.table) if name.startswith(".")]
        if probes:
            raise Wrong(f"left: {probes}")

    async def _check_again(self) -> None:
        """The id of a job that did not commit can be used again."""
        earlier, _marker = look(self.table)
        await life.run(self.table, self.case.flavour)
        tree, marker = look(self.table)
        if (tree, marker) != (life.add_job(earlier, self.case.flavour), life.JOB):
            raise Wrong(f"run again: {tell(tree, life.add_job(earlier, self.case.flavour))}, _SUCCESS of {marker!r}")


def run(case: Case, root: str) -> str:
    """Runs a case in a new directory; says what is wrong, or nothing."""
    os.mkdir(root)
    one = Run(case, root)
    try:
        one.go()
    except Wrong as wrong:
        return "\n    ".join([str(wrong), *one.history])
    except Exception as error:
        return "\n    ".join(["".join(traceback.format_exception(error)), *one.history])
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return ""

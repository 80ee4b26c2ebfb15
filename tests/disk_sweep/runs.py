"""One run: a driver that meets one fault, what others do meanwhile, and how it is ended."""

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
import committer.api.cleanup  # else each run imports it
from committer.errors import CommitterError, JobNotFoundError, JobStateError, JobUndecidedError
from committer.flow.runtime import use_runtime
from tests.disk_sweep import life, mounts, planted
from tests.disk_sweep.account import Fate, Wrong, fate, left, look, put
from tests.disk_sweep.calls import Gate, install
from tests.disk_sweep.intruder import Intruder
from tests.disk_sweep.verdict import Told, Verdict
from tests.disk_sweep.victims import VICTIMS, abort, work

LONGEST_S: Final = 60
# Store calls that rename something by its whole name.
_BY_NAME: Final = frozenset({"rename_file", "rename_files", "rename_directory", "link_file", "put"})
_OLD_MARKER: Final = '{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1", "jobId": "old", "success": true}'


class Case(NamedTuple):
    """One run, by name: `append/plain/commit/once ENOSPC/17`.

    Attributes:
        flavour: Of the job.
        disk: What the disk lacks.
        victim: Who meets the fault.
        fault: ``once``, ``on`` or ``late`` and an error; ``before`` or ``after``; ``stop`` and what others do meanwhile;
            ``full`` or ``read-only``; ``plant`` and which of the places that the call goes by.
        number: At which system call.
    """

    flavour: str
    disk: str
    victim: str
    fault: str
    number: int

    def __str__(self) -> str:
        return "/".join(str(part) for part in self)

    @classmethod
    def of(cls, text: str) -> Self:
        flavour, disk, victim, fault, number = text.split("/")
        return cls(flavour, disk, victim, fault, int(number))

    @property
    def what(self) -> str:
        return self.fault.partition(" ")[0]

    @property
    def detail(self) -> str:
        return self.fault.partition(" ")[2]


class Run:
    """One run, in a directory of its own.

    Args:
        case: Which.
        root: The directory; made by the caller.
        bug: A bug to plant in the engine, by name.
    """

    def __init__(self, case: Case, root: str, bug: str = "") -> None:
        self.case = case
        self._disk = os.path.join(root, "disk")
        self._mounted = case.what in {"full", "read-only"}
        self.table = os.path.join(self._disk, "table")
        self._answer = os.path.join(root, "answer")
        self._bug = bug
        self.before = life.before(case.flavour)
        self.intruder = Intruder(os.path.join(root, "outside"), self.table)
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
        stood = self._prepare()
        victim = self._start()
        other = Told("none")
        _pid, status = os.waitpid(victim, os.WUNTRACED)
        # A disk that lists another way round may spare a driver its last calls: then it ends without a stop.
        if os.WIFSTOPPED(status):
            other = asyncio.run(self._other())
            os.kill(victim, signal.SIGCONT)
            _pid, status = os.waitpid(victim, 0)
        if self._mounted:
            mounts.end(self.case.what, self._disk)
        told = self._told(status)
        verdict = Verdict(self.case, self.table, self.before, stood)
        if self.intruder.came and self._undo_link(told):
            return
        with use_runtime(life.Impatient()):
            asyncio.run(self._settle(verdict, told, other))

    def trace(self) -> dict[str, Any]:
        """Every system call of the victim that meets no fault, and the modules it imported."""
        self._prepare()
        os.waitpid(self._start(), 0)
        answer = json.loads(Path(self._answer).read_text())
        if answer["kind"] != "done":
            raise Wrong(f"the driver without a fault failed: {answer}")
        return {"seen": answer["seen"], "modules": answer["modules"]}

    def _prepare(self) -> tuple[dict[str, str], str, Fate]:
        """What stands before the victim begins."""
        put(self.table, {**self.before, "_SUCCESS": _OLD_MARKER})
        life.use_disk(self.case.disk)
        start = VICTIMS[self.case.victim].start
        if start is not None:
            child = os.fork()
            if not child:
                try:
                    signal.alarm(LONGEST_S)
                    install(Gate(ends_at=start))
                    asyncio.run(self._guarded("commit"))
                finally:
                    os._exit(0)
            _pid, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status) != 9:
                raise Wrong("the driver before did not die where it should")
        return (*look(self.table), fate(self.table, life.JOB))

    # -- the victim ---------------------------------------------------------------------------------------------

    def _start(self) -> int:
        child = os.fork()
        if child:
            return child
        try:
            signal.alarm(LONGEST_S)
            case = self.case
            start = VICTIMS[case.victim].start
            gate = Gate(case.number, case.what, case.detail if case.what in {"once", "on", "late"} else "")
            gate.phase = start.phase if start is not None else ""
            if self._mounted:
                gate.trouble = lambda _operation: mounts.begin(case.what, self._disk)
            elif case.what == "plant":
                gate.trouble = functools.partial(self.intruder.plant, int(case.detail))
            write = Path(self._answer).write_text
            planted.plant(self._bug)
            install(gate)
            told = asyncio.run(self._guarded(VICTIMS[case.victim].verb))
            number = case.number
            at = gate.seen[number - 1] if 0 < number <= len(gate.seen) else ("", "")
            traced = {"seen": gate.seen, "modules": list(sys.modules)} if not number else {}
            write(json.dumps({**told._asdict(), "at": at, **traced}))
        finally:
            os._exit(0)

    async def _guarded(self, what: str) -> Told:
        try:
            with use_runtime(life.Impatient()):
                await work(what, self.table, self.case.flavour, self.case.disk)
        except CommitterError as error:
            return Told(type(error).__name__, error.outcome, str(error))
        except Exception as error:
            return Told("untyped", "", "".join(traceback.format_exception(error)))
        return Told("done")

    def _told(self, status: int) -> Told:
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGALRM:
            raise Wrong(f"the driver did not end in {LONGEST_S} s")
        if not os.path.exists(self._answer):
            if code != 9:
                raise Wrong(f"the driver ended with {code}")
            return Told()
        answer = json.loads(Path(self._answer).read_text())
        self.history.append(f"call {self.case.number}: {' '.join(map(str, answer['at']))}")
        told = Told(answer["kind"], answer["outcome"], answer["text"])
        self.history.append(f"{self.case.victim}: {told.kind} {told.outcome} {told.text}")
        if told.kind == "untyped":
            raise Wrong("an error that is none of ours")
        return told

    async def _other(self) -> Told:
        what = self.case.detail
        told = await self._guarded(what)
        self.history.append(f"{what}: {told.kind} {told.outcome} {told.text}")
        if told.kind == "untyped":
            raise Wrong(f"{what}: {told.text}")
        return told

    def _undo_link(self, told: Told) -> bool:
        """Takes the link away; whether a rename went through it, so that no administrator could make it good.

        A rename goes by whole names, right after a look that found no link: what is put there in between leads it
        astray, or is what is renamed. Nothing else may follow one.
        """
        if not (self.intruder.touched() or self.intruder.is_published()):
            self.intruder.undo()
            return False
        self.history.append(f"{told.kind} {told.outcome}")
        answer = json.loads(Path(self._answer).read_text())
        name, operation = answer["at"][0], answer["at"][3].partition(" ")[0]
        tree, _marker = look(self.table)
        # Without a rename that replaces nothing a file moves by a second name, and the removal of the first. What has the
        # temporary name of a record, which the intruder learned from a listing, may be taken for it, and go with it.
        self.intruder.check_nothing_lost(tree, but=self.case.disk == "no flag" or operation == "put")
        # A rollback that moved another file than it looked at moves it back, whatever it is: it may be a neighbour's link.
        moved_back = self.case.victim == "roll back" and operation == "status" and not self.intruder.touched()
        if operation not in _BY_NAME and not moved_back:
            raise Wrong(f"a link was followed by {operation}, at {name}")
        return True

    # -- the end ------------------------------------------------------------------------------------------------

    async def _settle(self, verdict: Verdict, told: Told, other: Told) -> None:
        forced = self.case.detail == "force"
        if not forced:
            verdict.check_between()
        state = await self._state()
        self.history.append(f"state: {state}")
        if forced:
            verdict.check_forced(told)
        else:
            verdict.check_told(told, alone=self.case.what != "stop")
        reported = verdict.says_committed(told)
        await self._end(state, reported=reported)
        if forced:
            verdict.check_forced(told)
        else:
            verdict.check_end(told, other)
        await self._check_nothing_is_left()
        if not forced and look(self.table)[1] == "old":
            await self._run_again(verdict)

    async def _state(self) -> str:
        jobs = await committer.list_jobs(self.table, storage_options=life.options())
        return next((job.state for job in jobs if job.job_id == life.JOB), "gone")

    async def _end(self, state: str, *, reported: bool) -> None:
        """Ends the job as its state asks for."""
        number, options = self.case.number, life.options()
        try:
            if state == "committing" and number % 2:
                await self._roll_back(options)
            elif state == "unknown" and (reported or look(self.table)[1] == life.JOB):
                # The last delete of its directory failed: nothing is left of it but that.
                await committer.cleanup(self.table, job_id=life.JOB, storage_options=options)
            elif state == "unknown":
                # Not even its setup record was written: the next job of that id takes its place.
                await life.run(self.table, self.case.flavour)
            elif state == "open" and number % 3 == 0:
                await abort(self.table, options)
            elif state in {"open", "aborted"} and number % 3 == 1:
                await committer.cleanup(self.table, job_id=life.JOB, storage_options=options)
            else:
                await committer.recover(self.table, life.JOB, storage_options=options)
        except JobUndecidedError:
            await abort(self.table, options)
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

    async def _check_nothing_is_left(self) -> None:
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

    async def _run_again(self, verdict: Verdict) -> None:
        """The id of a job that did not commit can be used again."""
        earlier, _marker = look(self.table)
        await life.run(self.table, self.case.flavour)
        verdict.check_again(earlier)


def run(case: Case, root: str, bug: str = "") -> str:
    """Runs a case in a new directory; says what is wrong, or nothing."""
    os.mkdir(root)
    one = Run(case, root, bug)
    try:
        one.go()
    except Wrong as wrong:
        return "\n    ".join([str(wrong), *one.history])
    except Exception as error:
        return "\n    ".join(["".join(traceback.format_exception(error)), *one.history])
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return ""

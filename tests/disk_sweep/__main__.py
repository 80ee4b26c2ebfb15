"""`python -m tests.disk_sweep`: faults at every system call of a job on a real disk, each in processes of their own.

    python -m tests.disk_sweep                                               all of it
    python -m tests.disk_sweep --kind errors --flavour append --disk plain --share 20
    python -m tests.disk_sweep --case "append/plain/commit/once ENOSPC/17"   one of them, again

Imports once and forks for each run. Exit code 1 when a run ends as it must not.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.disk_sweep import life
from tests.disk_sweep.calls import PHASES
from tests.disk_sweep.cases import KINDS, MOUNTED, Selection
from tests.disk_sweep.meaning import Call
from tests.disk_sweep.planted import BUGS
from tests.disk_sweep.runs import LONGEST_S, Case, Run, run
from tests.disk_sweep.victims import FLAVOURS, LINKING, VICTIMS


class Sweep:
    """Runs cases, some at once, each in a process group of its own."""

    def __init__(self, root: str, workers: int, bug: str = "") -> None:
        self._root = root
        self._workers = workers
        self._bug = bug
        self._running: dict[int, tuple[Case, str]] = {}
        self.runs = 0
        self.failed: list[tuple[Case, str]] = []

    def calls(self, flavour: str, disk: str, victim: str) -> list[Call]:
        """The system calls of a driver that meets no fault."""
        answer = os.path.join(self._root, "calls")
        root = os.path.join(self._root, "trace")
        child = os.fork()
        if child == 0:
            try:
                os.mkdir(root)
                Path(answer).write_text(json.dumps(Run(Case(flavour, disk, victim, "none", 0), root).trace()))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        shutil.rmtree(root)
        traced = json.loads(Path(answer).read_text())
        # What a run imports when it first needs it would be imported by each of them.
        for name in traced["modules"]:
            with suppress(ImportError):
                importlib.import_module(name)
        return [Call(*call) for call in traced["seen"]]

    def start(self, case: Case) -> None:
        """Starts a run, once there is room for it."""
        while len(self._running) >= self._workers:
            self._reap()
        self.runs += 1
        answer = os.path.join(self._root, f"answer-{self.runs}")
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                signal.alarm(2 * LONGEST_S)
                Path(answer).write_text(run(case, os.path.join(self._root, f"run-{self.runs}"), self._bug))
            finally:
                os._exit(0)
        self._running[child] = case, answer

    def end(self) -> None:
        """Waits for all runs."""
        while self._running:
            self._reap()

    def _reap(self) -> None:
        child, status = os.wait()
        case, answer = self._running.pop(child)
        with suppress(ProcessLookupError):
            # A driver that stands still outlives a run that failed.
            os.killpg(child, signal.SIGKILL)
        if os.path.exists(answer):
            wrong = Path(answer).read_text()
            os.unlink(answer)
        else:
            wrong = f"the run ended with {os.waitstatus_to_exitcode(status)}"
        if wrong:
            self.failed.append((case, wrong))
            print(f"{case}: {wrong}\n", flush=True)


def selected(sweep: Sweep, told: argparse.Namespace) -> Iterator[Case]:
    """Every run that was asked for."""
    selection = Selection(told.every_call)
    for disk in told.disk or life.DISKS:
        for victim in told.victim or VICTIMS:
            for flavour in told.flavour or FLAVOURS.get(victim, ("append",)):
                if disk == "no links" and flavour not in LINKING and not told.flavour:
                    continue
                calls = sweep.calls(flavour, disk, victim)
                for kind in told.kind or KINDS:
                    for case in selection.cases(kind, flavour, disk, victim, calls):
                        if told.phase in (None, calls[case.number - 1].phase):
                            yield case


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.disk_sweep")
    parser.add_argument("--kind", choices=(*KINDS, MOUNTED), action="append", help="`disks` needs unshare --mount")
    parser.add_argument("--flavour", choices=tuple(life.FLAVOURS), action="append")
    parser.add_argument("--disk", choices=life.DISKS, action="append")
    parser.add_argument("--victim", choices=tuple(VICTIMS), action="append", help="who meets the fault")
    parser.add_argument("--phase", choices=PHASES, help="only at calls after this record was put")
    parser.add_argument("--every-call", action="store_true", help="calls of one meaning, too: hours")
    parser.add_argument("--share", type=int, default=1, help="one run of so many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--root", help="where tables go: a directory of the file system to sweep")
    parser.add_argument("--case", action="append", help="only this run, as the sweep named it")
    parser.add_argument("--planted", choices=tuple(BUGS), default="", help="a bug that must be found")
    parser.add_argument("--count", action="store_true", help="say how many runs there are, and of which kind")
    told = parser.parse_args()
    logging.getLogger("committer").addHandler(logging.NullHandler())
    gc.disable()
    gc.freeze()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=told.root, prefix="sweep-") as root:
        sweep = Sweep(os.path.realpath(root), told.workers, told.planted)
        chosen = map(Case.of, told.case) if told.case else selected(sweep, told)
        if told.count:
            counted = Counter((case.victim, case.fault.partition(" ")[0]) for case in chosen)
            for (victim, fault), count in sorted(counted.items()):
                print(f"{count:6} {victim}: {fault}")
            print(f"{counted.total():6}")
            return 0
        for number, case in enumerate(chosen):
            if told.case or number % told.share == 0:
                sweep.start(case)
        sweep.end()
    usage = os.times()
    cpu = usage.user + usage.system + usage.children_user + usage.children_system
    print(
        f"{sweep.runs} runs, {len(sweep.failed)} failed, {time.perf_counter() - started:.0f} s, {cpu:.0f} s of CPU, "
        f"share {told.share}"
    )
    return 1 if sweep.failed or not sweep.runs else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.disk_sweep`: faults at every system call of a job on a real disk, each in processes of their own.

    python -m tests.disk_sweep                                        all of it
    python -m tests.disk_sweep --kind errors --flavour append --disk plain --share 20
    python -m tests.disk_sweep --case "append/plain/once ENOSPC/17"   one of them, again

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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.disk_sweep import life
from tests.disk_sweep.calls import CHANGING, ERRORS
from tests.disk_sweep.runs import LONGEST_S, OTHERS, Case, Run, run
from tests.rotation import offset

KINDS = ("errors", "exits", "stops")
MOUNTED = "disks"


def cases(kind: str, flavour: str, disk: str, calls: list[tuple[str, str]], *, every: bool = False) -> Iterator[Case]:
    """The runs of a kind.

    Where a process ends or stands still only what it changed counts for others, and what it saw for itself: so around
    each call that changes something. Of the errors that a call can fail with, two take turns unless `every` is set.
    """
    for number, (name, _at) in enumerate(calls, start=1):
        changes = name in CHANGING
        if kind == "errors":
            errors = ERRORS[name]
            for error in errors if every else dict.fromkeys(errors[(number + turn) % len(errors)] for turn in (0, 1)):
                yield Case(flavour, disk, f"once {error}", number)
                yield Case(flavour, disk, f"on {error}", number)
            if changes:
                yield Case(flavour, disk, f"late {'EIO' if number % 2 else 'ESTALE'}", number)
        elif kind == MOUNTED:
            yield Case(flavour, disk, "full", number)
            yield Case(flavour, disk, "read-only", number)
        elif kind == "exits" and changes:
            yield Case(flavour, disk, "before", number)
            yield Case(flavour, disk, "after", number)
        elif kind == "stops" and (changes or (number > 1 and calls[number - 2][0] in CHANGING)):
            for other in OTHERS:
                yield Case(flavour, disk, f"stop {other}", number)


class Sweep:
    """Runs cases, some at once, each in a process group of its own."""

    def __init__(self, root: str, workers: int) -> None:
        self._root = root
        self._workers = workers
        self._running: dict[int, tuple[Case, str]] = {}
        self.runs = 0
        self.failed: list[tuple[Case, str]] = []

    def calls(self, flavour: str, disk: str) -> list[tuple[str, str]]:
        """The system calls of a job without faults."""
        answer = os.path.join(self._root, "calls")
        root = os.path.join(self._root, "trace")
        child = os.fork()
        if child == 0:
            try:
                os.mkdir(root)
                Path(answer).write_text(json.dumps(Run(Case(flavour, disk, "none", 0), root).trace()))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        shutil.rmtree(root)
        traced = json.loads(Path(answer).read_text())
        # What a run imports when it first needs it would be imported by each of them.
        for name in traced["modules"]:
            with suppress(ImportError):
                importlib.import_module(name)
        return [(name, at) for name, at in traced["seen"]]

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
                Path(answer).write_text(run(case, os.path.join(self._root, f"run-{self.runs}")))
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.disk_sweep")
    parser.add_argument("--kind", choices=(*KINDS, MOUNTED), action="append", help="`disks` needs unshare --mount")
    parser.add_argument("--flavour", choices=tuple(life.FLAVOURS), action="append")
    parser.add_argument("--disk", choices=life.DISKS, action="append")
    parser.add_argument("--every-error", action="store_true", help="all errors at each call, in place of two in turns")
    parser.add_argument("--share", type=int, default=1, help="one run of so many")
    parser.add_argument("--offset", type=int, default=None, help="which of them; told by the commit when left out")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--root", help="where tables go: a directory of the file system to sweep")
    parser.add_argument("--case", action="append", help="only this run, as the sweep named it")
    told = parser.parse_args()
    logging.getLogger("committer").addHandler(logging.NullHandler())
    gc.disable()
    gc.freeze()
    started = time.perf_counter()
    first = (offset() if told.offset is None else told.offset) % told.share
    with tempfile.TemporaryDirectory(dir=told.root, prefix="sweep-") as root:
        sweep = Sweep(os.path.realpath(root), told.workers)
        for text in told.case or ():
            sweep.start(Case.of(text))
        if not told.case:
            for disk in told.disk or life.DISKS:
                for flavour in told.flavour or life.FLAVOURS:
                    calls = sweep.calls(flavour, disk)
                    for kind in told.kind or KINDS:
                        for number, case in enumerate(cases(kind, flavour, disk, calls, every=told.every_error)):
                            if (number + first) % told.share == 0:
                                sweep.start(case)
        sweep.end()
    usage = os.times()
    cpu = usage.user + usage.system + usage.children_user + usage.children_system
    print(
        f"{sweep.runs} runs, {len(sweep.failed)} failed, {time.perf_counter() - started:.0f} s, {cpu:.0f} s of CPU, "
        f"offset {first} of {told.share}"
    )
    return 1 if sweep.failed or not sweep.runs else 0


if __name__ == "__main__":
    sys.exit(main())

"""Hadoop's committers and this engine, side by side on the same tree, in one run.

    uv run benchmarks/compare_java.py [--shape 1000x10x100] [--latency-ms 20] [--threads 32,64,256]
                                      [--v1] [--no-op] [--rounds 3] [--json FILE]

Those are the defaults, without `--v1` and `--no-op`. A shape is tasks x files of a task x directories. Every round
measures each side once, in an order that turns from round to round, so that what else the machine does meets all; only
ratios within a round are claims. Java is Hadoop's own code, from the jars of the installed PySpark, warm after a few
jobs; our side is the public API with all of its stages, on asyncio's loop and on uvloop by listing, as Java's, and on
asyncio's by message: the driver is given what its tasks returned, and reads no record of a small task. All commit
jobs whose tasks were prepared without latency. With a latency each store call waits: one wait a call, two for a small
file that is created and then renamed; a batch waits once a file. Three rounds or more are kept in
`benchmarks/results/`. Needs a JDK (17 or later) and Linux."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine, scratch

HERE = Path(__file__).parent
WARM_UP = (200, 10, 50)
WARM_UPS = 3
JARS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "jcl-over-slf4j",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "log4j-1.2-api",
)
OURS = "committer"
OURS_ON_UVLOOP = "committer, uvloop"
OURS_BY_MESSAGE = "committer, by message"
_OURS = {OURS: "", OURS_ON_UVLOOP: ", ours on uvloop", OURS_BY_MESSAGE: ", ours by message"}
COLUMNS = ("wall s", "CPU us/file", "calls", "peak MB", "ours/this: wall", "CPU")

Sides: TypeAlias = dict[str, list[dict[str, Any]]]
"""What was measured of each side, in the order of the rounds."""


class Work(NamedTuple):
    """What is committed, and how slow the store is."""

    tasks: int
    files: int
    directories: int
    latency_ms: float
    no_op: bool

    @classmethod
    def of(cls, shape: str, latency_ms: float = 0.0, *, no_op: bool = False) -> Work:
        """Reads a shape: tasks x files of a task x directories."""
        if latency_ms != int(latency_ms):
            raise SystemExit(f"{latency_ms} ms: Java waits whole milliseconds only")
        tasks, files, directories = map(int, shape.split("x"))
        return cls(tasks, files, directories, latency_ms, no_op)

    @property
    def key(self) -> str:
        """What its results are kept under."""
        kind = "-no-op" if self.no_op else f"-{self.latency_ms:g}ms" if self.latency_ms else ""
        return f"compare-{self.tasks}x{self.files}x{self.directories}{kind}"

    def __str__(self) -> str:
        kind = "no-op store" if self.no_op else f"{self.latency_ms:g} ms a call" if self.latency_ms else "no latency"
        return f"{self.tasks}x{self.files}x{self.directories}, {kind}"


class Side:
    """A process that commits one job a line."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Commits a job; what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a side of the comparison ended with {self._process.wait()}: see above")
        return dict(json.loads(answer))

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Java(Side):
    """Hadoop's committers in one virtual machine."""

    def __init__(self, build: Path, root: Path, *, warm_ups: int = WARM_UPS) -> None:
        jars = class_path()
        compiler = shutil.which("javac")
        if compiler is None:
            raise SystemExit("javac was not found: install a JDK, 17 or later")
        subprocess.run(
            [compiler, "-nowarn", "-d", str(build), "-cp", jars, str(HERE / "java" / "CommitBench.java")], check=True
        )
        options = ["-Dlog4j2.level=ERROR", f"-Djava.io.tmpdir={build}", "-cp", f"{build}:{jars}"]
        super().__init__(["java", *options, "CommitBench"], dict(os.environ))
        self._root = root
        for _ in range(warm_ups):
            self.commit("manifest", Work(*WARM_UP, 0, no_op=False), 32)

    def commit(self, committer: str, work: Work, threads: int) -> dict[str, Any]:
        """One job commit."""
        numbers = [work.tasks, work.files, work.directories, int(work.latency_ms), threads]
        return self.ask(" ".join(map(str, [committer, *numbers, self._root, str(work.no_op).lower()])))


class Ours(Side):
    """This engine in one process."""

    def __init__(self, root: Path, *, uvloop: bool, by_message: bool = False, warm_ups: int = WARM_UPS) -> None:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        super().__init__([sys.executable, str(HERE / "commit_worker.py"), *(["uvloop"] * uvloop)], environment)
        self._root = root
        self._by_message = by_message
        # Short: names are most of a record, and a message holds one of up to 6 KiB.
        self._name = "m" if by_message else "u" if uvloop else "l"
        self._number = 0
        for _ in range(warm_ups):
            self.commit(Work(*WARM_UP, 0, no_op=False))

    def commit(self, work: Work) -> dict[str, Any]:
        """One job commit."""
        self._number += 1
        place = str(self._root / f"{self._name}-{self._number}")
        shape = {"destination": place, "by_message": self._by_message, **work._asdict()}
        return self.ask(json.dumps(shape))


def class_path() -> str:
    """The jars of the installed PySpark that Hadoop's committers need."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("PySpark is not installed: uv sync --extra spark")
    jars = Path(found.origin).parent / "jars"
    return ":".join(str(jar) for name in JARS for jar in jars.glob(f"{name}-[0-9]*.jar"))


def compare(work: Work, threads: list[int], *, v1: bool, rounds: int, root: Path, uvloop: bool = True) -> Sides:
    """Starts all sides and measures them `rounds` times; ours on uvloop too, where that is wanted and installed."""
    with tempfile.TemporaryDirectory(prefix="compare-classes-") as build, ExitStack() as stack:
        java = stack.enter_context(closing(Java(Path(build), root)))
        ours = {OURS: stack.enter_context(closing(Ours(root, uvloop=False)))}
        if uvloop and importlib.util.find_spec("uvloop") is not None:
            ours[OURS_ON_UVLOOP] = stack.enter_context(closing(Ours(root, uvloop=True)))
        if not work.no_op:
            ours[OURS_BY_MESSAGE] = stack.enter_context(closing(Ours(root, uvloop=False, by_message=True)))
        return take_turns(java, ours, work, threads, v1=v1, rounds=rounds)


def take_turns(java: Java, ours: Mapping[str, Ours], work: Work, threads: list[int], *, v1: bool, rounds: int) -> Sides:
    """Measures each side once a round; the measurements by side, in the order of the rounds."""
    measure = {name: partial(side.commit, work) for name, side in ours.items()}
    for count in threads:
        measure[f"manifest, {count} threads"] = partial(java.commit, "manifest", work, count)
    if v1:
        measure["v1"] = partial(java.commit, "v1", work, 1)
    sides: Sides = {name: [] for name in measure}
    order = deque(measure)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}: {work}", file=sys.stderr, flush=True)
        for name in order:
            sides[name].append(measure[name]())
        order.rotate(-1)
    return sides


def table(work: Work, sides: Sides) -> str:
    """One line a side: medians, and what we took in relation to it, round by round."""
    rows: list[tuple[str, ...]] = [("", *COLUMNS)]
    rows.extend((line.side, *line.cells) for line in lines(work.tasks * work.files, sides))
    return f"{work}; medians, ratios as median (least to most)\n{aligned(rows)}"


class Line(NamedTuple):
    """What a table says of one side."""

    side: str
    cells: tuple[str, ...]


def lines(files: int, sides: Sides) -> list[Line]:
    """The lines of a table, its headings being `COLUMNS`; the last compares with the fastest Java of each round."""
    found = []
    for name, measured in sides.items():
        cpu = statistics.median(one["cpu_s"] for one in measured) / files * 1e6
        cells = (
            f"{statistics.median(one['wall_s'] for one in measured):.2f}",
            f"{cpu:.1f}",
            f"{sum(measured[0]['calls'].values()) or '-'}",
            f"{max(one['peak_rss_bytes'] for one in measured) / 1e6:.0f}",
        )
        ratios = tuple(str(ratio(sides, [name], key)) for key in ("wall_s", "cpu_s")) if is_java(name) else ("", "")
        found.append(Line(name, cells + ratios))
    javas = [name for name in sides if is_java(name)]
    if len(javas) > 1:
        for ours, on in _OURS.items():
            if ours in sides:
                best = (str(ratio(sides, javas, key, ours=ours)) for key in ("wall_s", "cpu_s"))
                found.append(Line(f"the best of Java's{on}", ("", "", "", "", *best)))
    return found


def is_java(side: str) -> bool:
    """Whether a side is one of Hadoop's committers."""
    return side not in _OURS


class Ratio(NamedTuple):
    """What ours took in relation to others."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return "" if math.isnan(self.median) else f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def ratio(sides: Sides, others: list[str], key: str, *, ours: str = OURS) -> Ratio:
    """What ours took in relation to the best of some other sides, round by round."""
    best = [min(measured[key] for measured in of_round) for of_round in zip(*(sides[n] for n in others), strict=True)]
    # Java's clock of CPU time has steps of 10 ms: a tiny job takes none.
    ratios = [own[key] / other if other else math.nan for own, other in zip(sides[ours], best, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description="Hadoop's committers and this engine, side by side.")
    parser.add_argument("--shape", default="1000x10x100", help="tasks x files of a task x directories")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="what each store call waits; 20")
    parser.add_argument("--threads", default="32,64,256", help="threads of Hadoop's manifest committer, by comma")
    parser.add_argument("--v1", action="store_true", help="also Hadoop's file output committer, algorithm 1")
    parser.add_argument("--no-op", action="store_true", help="files do not exist and renames do nothing")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the trees go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    with_pyspark()
    work = Work.of(arguments.shape, arguments.latency_ms, no_op=arguments.no_op)
    threads = [int(text) for text in arguments.threads.split(",")]
    about = {**machine(), "java": java_version()}
    with scratch(arguments.root) as root:
        sides = compare(work, threads, v1=arguments.v1, rounds=arguments.rounds, root=root)
    print(table(work, sides))
    if arguments.json or arguments.rounds >= ROUNDS:
        found = {"work": str(work), **work._asdict(), "machine": about, "sides": sides}
        keep(work.key, found, file=arguments.json)


def with_pyspark() -> None:
    """Starts this program again in an environment that has PySpark, where this one has not."""
    if importlib.util.find_spec("pyspark") is not None:
        return
    uv = shutil.which("uv")
    if uv is None or "COMPARE_JAVA_AGAIN" in os.environ:
        raise SystemExit("PySpark is not installed: uv sync --extra spark")
    os.environ["COMPARE_JAVA_AGAIN"] = "1"
    os.execv(uv, [uv, "run", "--extra", "spark", *sys.argv])


if __name__ == "__main__":
    main()

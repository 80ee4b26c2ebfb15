"""Hadoop's committers and this engine, side by side on the same tree, in one run.

    uv run --extra spark benchmarks/compare_java.py [--shape 1000x10x100] [--latency-ms 20] [--threads 32,64,256]
                                                    [--v1] [--no-op] [--rounds 3] [--json FILE]

A shape is tasks x files of a task x directories. Every round measures each side once, one after the other, so that
what else the machine does meets both; only ratios within a round are claims. Java is Hadoop's own code, from the jars
of the installed PySpark, warm after a few jobs; our side is the public API with all of its stages. Both commit jobs
whose tasks were prepared without latency. With `--latency-ms` each store call waits: one wait a call, two for a small
file that is created and then renamed; a batch waits once a file. Needs a JDK (17 or later) and Linux.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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


class Work(NamedTuple):
    """What is committed, and how slow the store is."""

    tasks: int
    files: int
    directories: int
    latency_ms: float
    no_op: bool

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
        self._process.stdin.close()
        self._process.wait()


class Java(Side):
    """Hadoop's committers in one virtual machine."""

    def __init__(self, build: Path, root: Path) -> None:
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
        for _ in range(WARM_UPS):
            self.commit("manifest", Work(*WARM_UP, 0, no_op=False), 32)

    def commit(self, committer: str, work: Work, threads: int) -> dict[str, Any]:
        """One job commit."""
        numbers = [work.tasks, work.files, work.directories, int(work.latency_ms), threads]
        return self.ask(" ".join(map(str, [committer, *numbers, self._root, str(work.no_op).lower()])))


class Ours(Side):
    """This engine in one process."""

    def __init__(self, root: Path, *, uvloop: bool) -> None:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        super().__init__([sys.executable, str(HERE / "commit_worker.py"), *(["uvloop"] * uvloop)], environment)
        self._root = root
        self._number = 0
        for _ in range(WARM_UPS):
            self.commit(Work(*WARM_UP, 0, no_op=False))

    def commit(self, work: Work) -> dict[str, Any]:
        """One job commit."""
        self._number += 1
        shape = {"destination": str(self._root / f"ours-{self._number}"), **work._asdict()}
        return self.ask(json.dumps(shape))


def class_path() -> str:
    """The jars of the installed PySpark that Hadoop's committers need."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("PySpark is not installed: uv sync --extra spark")
    jars = Path(found.origin).parent / "jars"
    return ":".join(str(jar) for name in JARS for jar in jars.glob(f"{name}-[0-9]*.jar"))


@contextmanager
def scratch(where: str | None) -> Iterator[Path]:
    """A directory on tmpfs where there is one."""
    shared = Path("/dev/shm")
    parent = where or (str(shared) if shared.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="compare-", dir=parent) as directory:
        yield Path(directory)


def compare(work: Work, threads: list[int], *, v1: bool, rounds: int, root: Path, uvloop: bool) -> dict[str, Any]:
    """Alternates all sides; the measurements by side, in the order of the rounds."""
    sides: dict[str, list[dict[str, Any]]] = {OURS: []}
    with tempfile.TemporaryDirectory(prefix="compare-classes-") as build:
        java, ours = Java(Path(build), root), Ours(root, uvloop=uvloop)
        try:
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}: {work}", file=sys.stderr, flush=True)
                sides[OURS].append(ours.commit(work))
                for count in threads:
                    label = f"manifest, {count} threads"
                    sides.setdefault(label, []).append(java.commit("manifest", work, count))
                if v1:
                    sides.setdefault("v1", []).append(java.commit("v1", work, 1))
        finally:
            java.close()
            ours.close()
    return sides


def table(work: Work, sides: dict[str, list[dict[str, Any]]]) -> str:
    """One line a side: medians, and what we took in relation to it, round by round."""
    files = work.tasks * work.files
    rows = [("", "wall s", "CPU us/file", "calls", "peak MB", "ours/this: wall", "CPU")]
    for name, measured in sides.items():
        wall, cpu = ([one[key] for one in measured] for key in ("wall_s", "cpu_s"))
        calls = sum(measured[0]["calls"].values())
        ratios = ("", "")
        if name != OURS:
            ratios = (ratio(sides, name, "wall_s"), ratio(sides, name, "cpu_s"))
        peak = max(one["peak_rss_bytes"] for one in measured) / 1e6
        rows.append(
            (
                name,
                f"{statistics.median(wall):.2f}",
                f"{statistics.median(cpu) / files * 1e6:.1f}",
                str(calls or "-"),
                f"{peak:.0f}",
                *ratios,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{work}; medians, ratios as median (least to most)", *lines])


def ratio(sides: dict[str, list[dict[str, Any]]], name: str, key: str) -> str:
    """What ours took in relation to another side, round by round."""
    ratios = [ours[key] / other[key] for ours, other in zip(sides[OURS], sides[name], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def machine() -> dict[str, Any]:
    """Where this ran, and with what."""
    versions = {name: importlib.metadata.version(name) for name in ("lake-committer", "pyspark", "msgspec")}
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "java": java,
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Hadoop's committers and this engine, side by side.")
    parser.add_argument("--shape", default="1000x10x100", help="tasks x files of a task x directories")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="what each store call waits")
    parser.add_argument("--threads", default="32", help="threads of Hadoop's manifest committer, several by comma")
    parser.add_argument("--v1", action="store_true", help="also Hadoop's file output committer, algorithm 1")
    parser.add_argument("--no-op", action="store_true", help="files do not exist and renames do nothing")
    parser.add_argument("--uvloop", action="store_true", help="our side on uvloop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", help="where the trees go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there")
    arguments = parser.parse_args()
    tasks, files, directories = map(int, arguments.shape.split("x"))
    work = Work(tasks, files, directories, arguments.latency_ms, arguments.no_op)
    threads = [int(text) for text in arguments.threads.split(",")]
    with scratch(arguments.root) as root:
        about = machine()
        sides = compare(work, threads, v1=arguments.v1, rounds=arguments.rounds, root=root, uvloop=arguments.uvloop)
    print(table(work, sides))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        found = {"work": str(work), **work._asdict(), "machine": about, "sides": sides}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""A job commit of millions of files, on a store where renames and new directories do nothing: the engine's own work.

    uv run benchmarks/scale.py [--shapes 1000x1000x100,10000x1000x1000] [--rounds 3] [--json FILE]

A shape is tasks x files of a task x directories. Each job is prepared by one process and committed by a fresh one. It
prints CPU and wall seconds, and the peak of the resident set over an idle interpreter in which `committer` is imported
and every public name was used once. Each larger shape is then compared with the first: time should grow as the number
of files does, memory by a tenth at most. The records of a million files take 250 MB of /dev/shm. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.compare_java import Ours, Work
from benchmarks.kept import ROUNDS, aligned, keep, machine, scratch

NAME = "scale"
_IDLE = """
import committer
for name in committer.__all__:
    getattr(committer, name)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


def idle_rss_bytes() -> int:
    """The resident set of an interpreter that loaded the package and did nothing."""
    done = subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def measure(work: Work, root: Path) -> dict[str, Any]:
    """One job commit in a fresh process."""
    worker = Ours(root, uvloop=False, warm_ups=0)
    try:
        return worker.commit(work)
    finally:
        worker.close()


def rows(shapes: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One line a shape, and how it grew from the first."""
    found: list[tuple[str, ...]] = [
        ("files", "CPU s", "wall s", "CPU us/file", "peak over idle MB", "CPU a file/first", "memory/first")
    ]
    first = shapes[0]
    for shape in shapes:
        cpu_ratio = shape["cpu_s"] / shape["files"] / (first["cpu_s"] / first["files"])
        grown = ("", "") if shape is first else (f"{cpu_ratio:.2f}", f"{shape['over_idle'] / first['over_idle']:.2f}")
        found.append(
            (
                f"{shape['files']:,}",
                f"{shape['cpu_s']:.2f}",
                f"{shape['wall_s']:.2f}",
                f"{shape['cpu_s'] / shape['files'] * 1e6:.2f}",
                f"{shape['over_idle'] / 1e6:.1f}",
                *grown,
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Job commits of millions of files on a store that does nothing.")
    parser.add_argument("--shapes", default="1000x1000x100,10000x1000x1000", help="several by comma")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the records go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    about = machine()
    works = [Work.of(shape, no_op=True) for shape in arguments.shapes.split(",")]
    measured: dict[Work, list[dict[str, Any]]] = {work: [] for work in works}
    idle: list[int] = []
    with scratch(arguments.root) as root:
        for number in range(arguments.rounds):
            for work in works:
                print(f"round {number + 1} of {arguments.rounds}: {work}", file=sys.stderr, flush=True)
                idle.append(idle_rss_bytes())
                measured[work].append(measure(work, root))
    shapes = [
        {
            "work": str(work),
            "files": work.tasks * work.files,
            "cpu_s": statistics.median(one["cpu_s"] for one in found),
            "wall_s": statistics.median(one["wall_s"] for one in found),
            "over_idle": max(one["peak_rss_bytes"] for one in found) - int(statistics.median(idle)),
            "rounds": found,
        }
        for work, found in measured.items()
    ]
    print(f"no-op store, {arguments.rounds} rounds: medians, memory the most of all rounds")
    print(aligned(rows(shapes)))
    if arguments.json or arguments.rounds >= ROUNDS:
        keep(NAME, {"machine": about, "idle_rss_bytes": idle, "shapes": shapes}, file=arguments.json)


if __name__ == "__main__":
    main()

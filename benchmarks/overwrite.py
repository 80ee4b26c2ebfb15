"""A job commit that replaces what an earlier job left, beside one of the same files that finds nothing there.

    uv run benchmarks/overwrite.py [--shape 1000x100x1000] [--old 100000,1000000] [--rounds 3] [--json FILE]

A shape is tasks x files of a task x directories. In each round a fresh process commits it twice, into a destination
that does not exist and over as many old files in the same directories: with files of a local disk, and on a store where
renames do nothing (what is left is the engine's work). Then it takes away each number of `--old` files for the sake of
ten new ones, on the store that does nothing: the peak of its resident set over an idle interpreter says what it keeps
of an old file. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.compare_java import Ours, Ratio
from benchmarks.kept import ROUNDS, aligned, keep, machine, scratch
from benchmarks.scale import idle_rss_bytes

NAME: Final = "overwrite"
STORES: Final = {"local disk": False, "no-op store": True}
AIM: Final = 2.0


class _Work(dict[str, Any]):
    """What `Ours.commit` sends."""

    def _asdict(self) -> dict[str, Any]:
        return self


def measure(shape: dict[str, Any], root: Path) -> dict[str, Any]:
    """One job commit in a fresh process."""
    worker = Ours(root, uvloop=False, warm_ups=0)
    try:
        return worker.commit(_Work(shape))  # type: ignore[arg-type]
    finally:
        worker.close()


def run(shape: str, old: list[int], rounds: int, root: Path) -> dict[str, Any]:
    """Measures all; what is kept."""
    tasks, files, directories = map(int, shape.split("x"))
    given = {"tasks": tasks, "files": files, "directories": directories}
    stores: dict[str, dict[str, list[dict[str, Any]]]] = {name: {"append": [], "overwrite": []} for name in STORES}
    many: dict[int, list[dict[str, Any]]] = {number: [] for number in old}
    idle: list[int] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}: {shape}", file=sys.stderr, flush=True)
        idle.append(idle_rss_bytes())
        for name, no_op in STORES.items():
            for kind, standing in (("append", 0), ("overwrite", tasks * files)):
                stores[name][kind].append(measure({**given, "no_op": no_op, "old": standing}, root))
        for count, found in many.items():
            few = {"tasks": 1, "files": 10, "directories": min(1000, max(1, count // 100))}
            found.append(measure({**few, "no_op": True, "old": count}, root))
    resting = int(statistics.median(idle))
    return {
        "work": shape,
        "files": tasks * files,
        "stores": {
            name: {kind: _summary(found, tasks * files, resting) for kind, found in kinds.items()}
            for name, kinds in stores.items()
        },
        "ratios": {name: _ratio(kinds) for name, kinds in stores.items()},
        "many": {str(count): _summary(found, count, resting) for count, found in many.items()},
    }


def _summary(found: list[dict[str, Any]], files: int, idle: int) -> dict[str, Any]:
    return {
        "cpu_us": statistics.median(one["cpu_s"] for one in found) / files * 1e6,
        "wall_s": statistics.median(one["wall_s"] for one in found),
        "over_idle": max(one["peak_rss_bytes"] for one in found) - idle,
        "calls": sum(found[0]["calls"].values()),
    }


def _ratio(kinds: dict[str, list[dict[str, Any]]]) -> list[float]:
    """CPU of an overwrite to that of an append: median, least, most."""
    pairs = zip(kinds["overwrite"], kinds["append"], strict=True)
    ratios = [over["cpu_s"] / plain["cpu_s"] for over, plain in pairs]
    return [statistics.median(ratios), min(ratios), max(ratios)]


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table of what was kept; the first row is the heading."""
    table: list[tuple[str, ...]] = [
        ("job commit", "CPU us/file", "calls a file", "peak over idle MB", "CPU, overwrite/append")
    ]
    for name, kinds in found["stores"].items():
        for kind, one in kinds.items():
            shown = str(Ratio(*found["ratios"][name])) if kind == "overwrite" else ""
            table.append((f"{kind}, {found['files']:,} files, {name}", *_cells(one, found["files"]), shown))
    for count, one in found["many"].items():
        table.append((f"10 files over {int(count):,} old ones, no-op store", *_cells(one, int(count)), ""))
    return table


def _cells(one: dict[str, Any], files: int) -> tuple[str, str, str]:
    return f"{one['cpu_us']:.1f}", f"{one['calls'] / files:.2f}", f"{one['over_idle'] / 1e6:.0f}"


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="1000x100x1000", help="tasks x files of a task x directories")
    parser.add_argument("--old", default="100000,1000000", help="several by comma; empty for none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the trees go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    about = machine()
    with scratch(given.root) as root:
        found = run(given.shape, [int(one) for one in given.old.split(",") if one], given.rounds, root)
    print(aligned(rows(found)))
    if given.json or given.rounds >= ROUNDS:
        keep(NAME, {"machine": about, "rounds": given.rounds, **found}, file=given.json)


if __name__ == "__main__":
    main()

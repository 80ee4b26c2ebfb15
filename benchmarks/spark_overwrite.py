"""A table that is overwritten inside Spark: its own delete and write, beside this engine's job commit.

    uv run --extra spark benchmarks/spark_overwrite.py [--shape 100x1000x1000] [--scale 1.0] [--format csv]
        [--rounds 3] [--json FILE]

A shape is tasks x files of a task x directories. The same writer of Spark's writes the same frame on the same bare
local file system (`java/BareFileSystem.java`, needs a JDK), with `mode("overwrite")`; only the job's side differs:
Spark's own protocol deletes the old files before the first task and renames the new ones one by one afterwards, and
this engine (`committer.spark.configure`) publishes the new ones, then takes the old ones away. Each side has a table of
its own, which the round before wrote. Files of CSV are written fastest, so that the job's side weighs most. CPU is that
of all processes. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.compare_java import with_pyspark
from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine, scratch
from benchmarks.spark_write import SPARKS_PROTOCOL, add_bare_file_system, processor_s, start_session
from committer.spark.protocol_session import PROTOCOL, PROTOCOL_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "spark-overwrite"
OURS: Final = "committer"
SPARKS: Final = "Spark's own"
PROTOCOLS: Final = {OURS: PROTOCOL, SPARKS: SPARKS_PROTOCOL}
AIM: Final = 1.2


class Shape(NamedTuple):
    """What is written each time."""

    tasks: int
    files: int
    directories: int

    @classmethod
    def of(cls, text: str, scale: float) -> Shape:
        """`TASKSxFILESxDIRECTORIES`; a share of the files of each task and of the directories."""
        tasks, files, directories = map(int, text.split("x"))
        return cls(tasks, max(1, int(files * scale)), max(1, int(directories * scale)))


def frame_of(spark: SparkSession, shape: Shape) -> DataFrame:
    """One row a file."""
    rows = shape.tasks * shape.files
    return spark.range(0, rows, 1, shape.tasks).selectExpr("id", f"id % {shape.directories} AS d")


def overwrite(frame: DataFrame, side: str, shape: Shape, target: Path, form: str) -> dict[str, float]:
    """Overwrites a table; what that took. Checks that no old file is left, and no new one lacks."""
    old = {path.name for path in target.rglob("part-*")}
    assert old
    frame.sparkSession.conf.set(PROTOCOL_KEY, PROTOCOLS[side])
    writer = frame.write.format(form).partitionBy("d").mode("overwrite")
    writer = writer.option("fs.file.impl", "BareFileSystem").option("fs.file.impl.disable.cache", "true")
    used, started = processor_s(), perf_counter()
    writer.save(f"file://{target}")
    took = {"wall_s": perf_counter() - started, "cpu_s": processor_s() - used}
    new = [path.name for path in target.rglob("part-*")]
    assert len(new) == shape.tasks * shape.files, len(new)
    assert old.isdisjoint(new)
    # Proves who committed: Spark's marker is empty.
    assert ((target / "_SUCCESS").stat().st_size == 0) == (side == SPARKS)
    return took


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """One line a side; the first row is the heading."""
    lines: list[tuple[str, ...]] = [("overwrite inside Spark", "wall s", "CPU s", "ours/this: wall", "CPU")]
    for side, measured in found["sides"].items():
        medians = (statistics.median(one[key] for one in measured) for key in ("wall_s", "cpu_s"))
        compared = ("", "") if side == OURS else (ratio(found, side, "wall_s"), ratio(found, side, "cpu_s"))
        name = f"{side}: {found['files']:,} files over as many, {found['directories']:,} directories, {found['format']}"
        lines.append((name, *(f"{value:.1f}" for value in medians), *compared))
    return lines


def ratio(found: dict[str, Any], side: str, key: str) -> str:
    """What ours took in relation to another, round by round."""
    pairs = zip(found["sides"][OURS], found["sides"][side], strict=True)
    ratios = [ours[key] / one[key] for ours, one in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def lay_out(shape: Shape, target: Path) -> None:
    """Writes the table that the first round overwrites."""
    for number in range(shape.directories):
        (target / f"d={number}").mkdir(parents=True)
    for number in range(shape.tasks * shape.files):
        (target / f"d={number % shape.directories}" / f"part-{number:08d}-old").write_bytes(b"0\n")


def run(shape: Shape, form: str, rounds: int, root: Path) -> dict[str, list[dict[str, float]]]:
    """Overwrites each table `rounds` times, after one time that does not count."""
    sides: dict[str, list[dict[str, float]]] = {side: [] for side in PROTOCOLS}
    order = deque(PROTOCOLS)
    with tempfile.TemporaryDirectory(prefix="benchmark-classes-") as build:
        spark = start_session()
        if not add_bare_file_system(spark, Path(build)):
            raise SystemExit("javac was not found: install a JDK, 17 or later")
        places = {side: root / f"table-{number}" for number, side in enumerate(order)}
        for place in places.values():
            lay_out(shape, place)
        frame = frame_of(spark, shape)
        for number in range(rounds + 1):
            for side in order:
                print(f"round {number} of {rounds}: {side}", file=sys.stderr, flush=True)
                took = overwrite(frame, side, shape, places[side], form)
                if number:
                    sides[side].append(took)
            order.rotate(-1)
        spark.stop()
    return sides


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="100x1000x1000", help="tasks x files of a task x directories")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of a task's files and of the directories")
    parser.add_argument("--format", default="csv", help="of the files, as Spark calls it")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the tables go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    with_pyspark()
    shape = Shape.of(given.shape, given.scale)
    about = {**machine(), "java": java_version()}
    with scratch(given.root) as root:
        sides = run(shape, given.format, given.rounds, root)
    found = {
        "machine": about,
        "files": shape.tasks * shape.files,
        "directories": shape.directories,
        "format": given.format,
        "sides": sides,
    }
    print(aligned(rows(found)))
    if given.json or (given.rounds >= ROUNDS and given.scale == 1.0):
        keep(NAME, found, file=given.json)


if __name__ == "__main__":
    main()

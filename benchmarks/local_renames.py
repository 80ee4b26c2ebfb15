"""What a rename costs on this disk by whole names, and through open directories (docs/decisions/0009).

    uv run python -m benchmarks.local_renames [--files 20000] [--directories 200] [--rounds 5] [--root DIRECTORY]

Files of many task attempt directories go into one directory, in batches of 128 as a job commit's, in one thread. The
ways take turns in each round, each with files of its own. CPU is that of this process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from committer.paths import StorePath
from committer.stores.local import kernel_rename
from committer.stores.local.disk import Disk
from committer.stores.local.renames import Renames

_BATCH = 128

Pairs = Sequence[tuple[str, str]]


def _by_whole_names(disk: Renames) -> Callable[[Pairs], None]:
    def rename(pairs: Pairs) -> None:
        for first in range(0, len(pairs), _BATCH):
            batch = pairs[first : first + _BATCH]
            errors = disk.rename_files([(StorePath("file", "", a), StorePath("file", "", b)) for a, b in batch])
            assert not errors

    return rename


def _through_open_directories(pairs: Pairs) -> None:
    for first in range(0, len(pairs), _BATCH):
        with ExitStack() as held:
            opened: dict[str, int] = {}

            def handle(directory: str, opened: dict[str, int] = opened, held: ExitStack = held) -> int:
                if directory not in opened:
                    opened[directory] = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                    held.callback(os.close, opened[directory])
                return opened[directory]

            for source, target in pairs[first : first + _BATCH]:
                above, name = os.path.split(source)
                below, new = os.path.split(target)
                kernel_rename.rename_no_replace(name, new, src_dir_fd=handle(above), dst_dir_fd=handle(below))


def _timed(rename: Callable[[Pairs], None], root: Path, files: int, directories: int) -> tuple[float, float, float]:
    """User CPU and system CPU a file in microseconds, and the wall time of all in milliseconds."""
    target = root / "table"
    target.mkdir(parents=True)
    pairs = []
    for number in range(directories):
        source = root / "tasks" / f"attempt-{number:05}"
        source.mkdir(parents=True)
        for file in range(files // directories):
            name = f"part-{number:05}-{file:05}"
            (source / name).touch()
            pairs.append((str(source / name), str(target / name)))
    before, began = os.times(), time.perf_counter()
    rename(pairs)
    wall, after = time.perf_counter() - began, os.times()
    assert sum(1 for _ in target.iterdir()) == len(pairs)
    shutil.rmtree(root)
    each = 1e6 / len(pairs)
    return (after.user - before.user) * each, (after.system - before.system) * each, wall * 1e3


def main() -> None:
    """Measures, and prints the least and the most of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--directories", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--root", default=None, help="a directory of the file system that is measured")
    given = parser.parse_args()
    ways = {
        "whole names, one look for links a directory": _by_whole_names(Disk(exclusive_rename=True)),
        "both directories held open": _through_open_directories,
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(dir=given.root) as root:
        for number in range(given.rounds):
            for name, rename in ways.items():
                run = Path(root) / str(number) / name
                found[name].append(_timed(rename, run, given.files, given.directories))
    print("| way | user CPU, µs a file | system CPU, µs a file | wall, ms |")
    print("|---|---|---|---|")
    for name, runs in found.items():
        cells = [f"{min(column):.1f} to {max(column):.1f}" for column in zip(*runs, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

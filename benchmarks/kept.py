"""Where measurements are kept: one JSON file a benchmark in `benchmarks/results/`, with the machine it ran on.

`benchmarks/report.py` makes the tables of the documentation of them; no figure is typed by hand.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
ROUNDS = 3
"""Fewer rounds make no claim, and are kept only where the caller says."""

_PACKAGES = ("lake-committer", "msgspec", "aiohttp", "anyio", "aiolimiter", "pyspark", "pyarrow", "uvloop")


def machine() -> dict[str, Any]:
    """Where this runs, when, how busy it is, and with what."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": dict(_versions()),
    }


def java_version() -> str:
    """The first line that `java -version` prints; empty without a Java."""
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return next(iter(done.stderr.splitlines()), "")


def keep(name: str, found: dict[str, Any], *, file: Path | None = None) -> Path:
    """Writes measurements; the file.

    Args:
        name: Which benchmark; a later run replaces an earlier one.
        found: The measurements; `machine` is among them.
        file: Another place than `benchmarks/results/`.
    """
    target = file or RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"name": name, **found}, indent=1) + "\n", encoding="utf-8")
    print(f"kept in {os.path.relpath(target)}", file=sys.stderr)
    return target


def kept(name: str, results: Path = RESULTS) -> dict[str, Any] | None:
    """What a benchmark measured last; None when it was never kept."""
    file = results / f"{name}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


@contextmanager
def scratch(where: str | None = None) -> Iterator[Path]:
    """A directory that goes again, on tmpfs where there is one."""
    shared = Path("/dev/shm")
    parent = where or (str(shared) if shared.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=parent) as directory:
        yield Path(directory)


def aligned(rows: list[tuple[str, ...]]) -> str:
    """A table for a terminal; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _first(lookup: Callable[[], str]) -> str:
    try:
        return lookup()
    except (OSError, subprocess.SubprocessError):
        return ""


def _commit() -> str:
    def ask() -> str:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return _first(ask)


def _processor() -> str:
    def read() -> str:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
        return ""

    return _first(read) or platform.processor()

"""The tables of `benchmarks/compare_clients.py`; no vendor's package is needed to read what it kept."""

from __future__ import annotations

import statistics

from benchmarks.compare_java import Sides, is_java, ratio

_COLUMNS = ("wall s", "CPU us/file", "requests/file", "ours/this: wall", "CPU")


def rows(files: int, sides: Sides, *, heading: str = "") -> list[tuple[str, ...]]:
    """What was measured of jobs of so many files; the first row is the heading."""
    found: list[tuple[str, ...]] = [(heading, *_COLUMNS)]
    for name, measured in sides.items():
        wall, cpu, requests = (
            statistics.median(one[key] for one in measured) for key in ("wall_s", "cpu_s", "requests")
        )
        ratios = tuple(str(ratio(sides, [name], key)) for key in ("wall_s", "cpu_s")) if is_java(name) else ("", "")
        # A server that does not count says 0.
        asked = f"{requests / files:.2f}" if requests else ""
        found.append((name, f"{wall:.2f}", f"{cpu / files * 1e6:.0f}", asked, *ratios))
    return found

"""Files against seconds, ours and Hadoop's, as a picture.

    uv run --extra spark benchmarks/scaling.py [--shapes 100x10x100,...] [--latency-ms 20] [--threads 32,256]
                                               [--rounds 3] [--json FILE] [--picture FILE] [--draw-only]

Every point is a comparison as `compare_java.py` makes it; the dots are medians, the bars reach from the least to the
most. With `--draw-only` the picture is made again of what was kept.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from benchmarks.compare_java import OURS, Work, compare, with_pyspark
from benchmarks.kept import ROOT, ROUNDS, java_version, keep, kept, machine, scratch

NAME = "scaling"
PICTURE = ROOT / "docs" / "images" / "scaling.png"
SHAPES = "100x10x100,300x10x100,1000x10x100,1000x30x100,1000x100x1000"

_OUR_COLOUR = "#0b6e4f"
_COLOURS = ("#c1121f", "#e07a1f", "#7a5195", "#3d5a80")
_MARKERS = ("s", "^", "D", "v")


def draw(found: dict[str, Any], picture: Path) -> None:
    """Draws what was measured.

    Args:
        found: As `main` keeps it.
        picture: A PNG file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    files = [point["files"] for point in found["points"]]
    others = [name for name in found["points"][0]["sides"] if name != OURS]
    styles = dict(zip(others, zip(_COLOURS, _MARKERS, strict=True), strict=False))
    for name in (*others, OURS):
        colour, marker = styles.get(name, (_OUR_COLOUR, "o"))
        walls = [[one["wall_s"] for one in point["sides"][name]] for point in found["points"]]
        medians = [statistics.median(wall) for wall in walls]
        reach = [
            [median - min(wall) for median, wall in zip(medians, walls, strict=True)],
            [max(wall) - median for median, wall in zip(medians, walls, strict=True)],
        ]
        label = "committer" if name == OURS else f"Hadoop's {name}"
        width = 2.4 if name == OURS else 1.4
        axes.errorbar(
            files,
            medians,
            yerr=reach,
            label=label,
            color=colour,
            marker=marker,
            linewidth=width,
            capsize=3,
            markersize=6,
        )
        axes.annotate(
            f"{medians[-1]:.1f} s",
            (files[-1], medians[-1]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(right=files[-1] * 1.9)
    axes.set_xticks(files, [f"{count:,}" for count in files])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _position: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axes.set_xlabel("files in the job")
    axes.set_ylabel("seconds for the job commit")
    latency = found["latency_ms"]
    axes.set_title(f"Job commit, {latency:g} ms a store call" if latency else "Job commit, local disk, no latency")
    axes.grid(visible=True, which="major", alpha=0.35)
    axes.grid(visible=True, which="minor", alpha=0.12)
    axes.legend(loc="upper left", frameon=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    # No date and no version of the library: the same measurements give the same file.
    figure.savefig(picture, dpi=120, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Files against seconds, ours and Hadoop's, as a picture.")
    parser.add_argument("--shapes", default=SHAPES, help="tasks x files of a task x directories, several by comma")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="what each store call waits; 20")
    parser.add_argument("--threads", default="32,256", help="threads of Hadoop's manifest committer, by comma")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="docs/images/scaling.png")
    parser.add_argument("--draw-only", action="store_true", help="draw what was kept")
    arguments = parser.parse_args()
    if arguments.draw_only:
        found = kept(NAME)
        if found is None:
            raise SystemExit("nothing was kept: run it without --draw-only")
        draw(found, arguments.picture)
        return
    with_pyspark()
    threads = [int(text) for text in arguments.threads.split(",")]
    found = {"machine": {**machine(), "java": java_version()}, "latency_ms": arguments.latency_ms, "points": []}
    with scratch() as root:
        for shape in arguments.shapes.split(","):
            work = Work.of(shape, arguments.latency_ms)
            sides = compare(work, threads, v1=False, rounds=arguments.rounds, root=root, uvloop=False)
            found["points"].append({"files": work.tasks * work.files, "work": str(work), "sides": sides})
    if arguments.json or arguments.rounds >= ROUNDS:
        keep(NAME, found, file=arguments.json)
    draw(found, arguments.picture)


if __name__ == "__main__":
    main()

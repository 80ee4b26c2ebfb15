"""Writes what was measured into README.md and three pages of docs/, so that no figure is typed by hand.

    uv run benchmarks/report.py [--check]

Each place is marked `<!-- measured: NAME -->` ... `<!-- end measured -->`; what stands between is replaced by what
`benchmarks/results/` holds. With `--check` nothing is written, and it fails where a place is not up to date.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    calls_a_file,
    client_cpu,
    client_sides,
    large_jobs,
    overwrite,
    publish_elsewhere,
    rate_cap,
    s3_overwrite,
    scale,
    scaling,
    spark_commit,
    spark_overwrite,
    spark_write,
    task_commit,
)
from benchmarks.compare_java import COLUMNS, OURS, OURS_BY_MESSAGE, OURS_ON_UVLOOP, Ratio, is_java, lines, ratio
from benchmarks.kept import RESULTS, ROOT, kept
from benchmarks.suite import HEADINGS, cells

_DOCS: Final = ROOT / "docs"
PAGES: Final = (
    ROOT / "README.md",
    *(_DOCS / page for page in ("performance.md", "scale.md", "decisions/measurements.md")),
)

_PLACE = re.compile(r"(<!-- measured: (\S+) -->\n)(.*?)(<!-- end measured -->)", re.DOTALL)
_FAR = "compare-1000x10x100-20ms"
_NEAR = "compare-1000x10x100"
_MANY = "compare-1000x100x1000"
_MOVES = ("store, one request", "aiohttp alone")
_HOW = {OURS_ON_UVLOOP: "on uvloop", OURS_BY_MESSAGE: "by message"}
_CLIENT_SHAPES = ("1000x10x100", "300x10x100", "300x10x50", "100x10x20", "30x10x10")

Results = Callable[[str], dict[str, Any] | None]
"""What a benchmark kept, by its name."""


def markdown(rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown; the first row is the heading."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def about(machine: Mapping[str, Any]) -> str:
    """One sentence on where and when."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    java = f", {machine['java']}" if machine.get("java") else ""
    return (
        f"Measured {machine['date']} at commit `{machine['commit'] or 'unknown'}`: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB, load {machine['load']:g} at the start, "
        f"Python {machine['python']}{java}, {versions}."
    )


def comparison(results: Results, name: str) -> str:
    """The table of one comparison with Hadoop's committers."""
    found = results(name)
    if found is None:
        return _missing("benchmarks/compare_java.py")
    files = found["tasks"] * found["files"]
    rows: list[tuple[str, ...]] = [(found["work"], *COLUMNS)]
    rows.extend((line.side, *line.cells) for line in lines(files, found["sides"]))
    rounds = len(found["sides"][OURS])
    return f"{markdown(rows)}\n\n{rounds} rounds; medians, ratios as median (least to most). {about(found['machine'])}"


def clients(results: Results, name: str) -> str:
    """The table of what clients of one cloud store took, of the largest jobs that were kept."""
    found = _clients(results, name)
    if found is None:
        return _missing("benchmarks/compare_clients.py")
    rows = client_sides.rows(found["tasks"] * found["files"], found["sides"], heading=found["work"])
    rounds = len(found["sides"][OURS])
    return f"{markdown(rows)}\n\n{rounds} rounds; medians, ratios as median (least to most). {about(found['machine'])}"


def _clients(results: Results, name: str) -> dict[str, Any] | None:
    return next(filter(None, (results(f"clients-{name}-{shape}") for shape in _CLIENT_SHAPES)), None)


def simple(results: Results, name: str, rows: Callable[[dict[str, Any]], list[tuple[str, ...]]], script: str) -> str:
    """The table of a benchmark that makes its own rows."""
    found = results(name)
    if found is None:
        return _missing(f"benchmarks/{script}.py")
    return f"{markdown(rows(found))}\n\n{about(found['machine'])}"


def suites(results: Results) -> str:
    """Calls and CPU of the suites that run on every store."""
    found = results("suites")
    if found is None:
        return _missing("benchmarks/all.sh")
    heading = (HEADINGS[0], "median s", *HEADINGS[1:])
    rows: list[tuple[str, ...]] = [heading]
    for one in found["benchmarks"]:
        if "calls" in one["extra_info"]:
            name, *rest = cells(one["name"], one["extra_info"])
            rows.append((name.replace("|", "/"), f"{one['median_s']:.4f}", *rest))
    return f"{markdown(rows)}\n\n{about(found['machine'])}"


def targets(results: Results) -> str:
    """What was aimed at, and what was measured."""
    rows: list[tuple[str, ...]] = [("work", "target, ours/Java", "measured")]
    rows.extend(_targets(results))
    return markdown(rows)


def _targets(results: Results) -> Iterator[tuple[str, str, str]]:
    far, near, many = results(_FAR), results(_NEAR), results(_MANY)

    def told(found: dict[str, Any] | None, javas: Callable[[str], bool], key: str = "wall_s") -> str:
        names = [name for name in found["sides"] if is_java(name) and javas(name)] if found else []
        if not found or not names:
            return "not measured"
        others = [ours for ours in (OURS_ON_UVLOOP, OURS_BY_MESSAGE) if ours in found["sides"]]
        more = [f"; {_HOW[ours]} {ratio(found['sides'], names, key, ours=ours)}" for ours in others]
        return f"{ratio(found['sides'], names, key)}{''.join(more)}"

    def manifest(name: str) -> bool:
        return name.startswith("manifest")

    yield "job commit 1000x10x100, 20 ms a call, 32 threads", "<= 0.20", told(far, lambda n: n.endswith(" 32 threads"))
    yield "the same, the best of Java's thread counts", "<= 0.5", told(far, manifest)
    capped = results(rate_cap.NAME)
    for one in capped["latencies"] if capped else []:
        shares = sorted(measured["share"] for measured in one["rounds"])
        middle = shares[len(shares) // 2]
        title = f"100,000 files at a cap of 10,000/s, {one['latency_ms']:g} ms a call: share of the cap"
        yield title, ">= 0.8", str(Ratio(middle, shares[0], shares[-1]))
    yield "job commit 1000x100x1000, no latency: wall", "<= 0.7", told(many, manifest)
    yield "the same: CPU a file", "<= 0.7", told(many, manifest, "cpu_s")
    yield "job commit 1000x10x100, no latency, the faster of manifest and v1", "<= 0.5", told(near, lambda _name: True)
    task = results(task_commit.NAME)
    for delivery, target in zip(task_commit.DELIVERIES, ("<= 2; 1", "<= 3; <= 2"), strict=True):
        title = f"task commit of ten files, delivery by {delivery}: calls; one after another (Java: 28)"
        yield title, target, _task(task, delivery)
    grown = results(scale.NAME)
    for shape in grown["shapes"] if grown else []:
        millions = shape["files"] // 1_000_000
        aim = "<= 4 s; <= 100 MB" if millions == 1 else f"<= {4 * millions} s; the same + 10 %"
        measured = f"{shape['cpu_s']:.1f} s; {shape['over_idle'] / 1e6:.0f} MB"
        yield f"{shape['files']:,} files, no-op store: CPU; peak memory over idle", aim, measured
    yield from _overwrites(results(overwrite.NAME))
    yield from _large_jobs(results(large_jobs.NAME))
    yield from _calls(results(calls_a_file.NAME))
    completions = results(client_cpu.S3_COMPLETE)
    told_cpu = f"{completions['cases']['store, uvloop']['cpu_us']:.0f} us" if completions else "not measured"
    yield "completion of an upload on S3: CPU of the client, uvloop, plain HTTP", "<= 250 us", told_cpu
    moves = results(client_cpu.GCS_MOVE)
    ours, alone = (f"{moves['cases'][f'{case}, uvloop']['cpu_us']:.0f} us" for case in _MOVES) if moves else ("", "")
    told_cpu = f"{ours}; aiohttp alone {alone}" if moves else "not measured"
    yield "move on Google Cloud Storage: CPU of the client, uvloop, plain HTTP", "<= 130 us", told_cpu
    split = results(client_cpu.HTTP_SPLIT)
    for title, sides in split["splits"].items() if split else ():
        added = list(sides.values())[-1]["ratio"] - 1
        yield f"{title}: CPU that store, limits and counts add to aiohttp alone", "<= 0.3", f"{added:.2f}"
    google = _clients(results, "gcs")
    for key, what, aim in (("wall_s", "wall", "<= 0.5"), ("cpu_s", "CPU of the client", "<= 0.3")):
        work = f"job commit {google['work']}" if google else "job commit"
        yield f"{work} on emulated Google Cloud Storage, Google's connector: {what}", aim, told(google, bool, key)
    spark = results(spark_write.NAME)
    for table in spark["tables"] if spark else []:
        for writer, target in ((spark_write.STOCK, "<= 1.10"), (spark_write.BARE, _bare_target(table))):
            for ours, how in ((spark_write.OURS, ""), (spark_write.OURS_UNCOUNTED, "; batches not measured")):
                if {ours, writer} <= table["writers"].keys():
                    title = f"Spark write, {table['rows']:,} rows ({table['table']}), against {writer}{how}"
                    yield title, target, spark_write.ratio(table, writer, "wall_s", ours)
    yield from _inside_spark(results)


def _inside_spark(results: Results) -> Iterator[tuple[str, str, str]]:
    replaced = results(spark_overwrite.NAME)
    if replaced:
        title = f"overwrite of {replaced['files']:,} files in {replaced['directories']:,} partitions from Spark: wall,"
        measured = spark_overwrite.ratio(replaced, spark_overwrite.SPARKS, "wall_s")
        yield f"{title} to its own delete and write", f"<= {spark_overwrite.AIM:g}", measured
    inside = results(spark_commit.NAME)
    for java, aim in spark_commit.AIMS.items() if inside else ():
        yield (
            f"job commit inside Spark, {inside['work']}, against {java}",
            f"<= {aim:g}",
            spark_commit.ratio(inside, java),
        )


def _calls(found: dict[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    for one in found["stores"] if found else []:
        ways = [f"{one[f'whole directories, by {how}']:.2f}" for how in calls_a_file.DELIVERIES]
        title = f"1000x10, a partition a task, {calls_a_file.TOLD[one['store']]}: calls a file by message; by listing"
        yield title, "<= 0.35; <= 0.45", "; ".join(ways)


def _overwrites(found: dict[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    for name, figures in found["ratios"].items() if found else ():
        title = f"overwrite of {found['files']:,} files, {name}: CPU, to an append's"
        yield title, f"<= {overwrite.AIM:g}", str(Ratio(*figures))
    for count, one in found["many"].items() if found else ():
        title = f"ten files over {int(count):,} old ones, no-op store: peak memory over idle"
        yield title, "<= 120 MB", f"{one['over_idle'] / 1e6:.0f} MB"


def _large_jobs(found: dict[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    most: dict[str, dict[str, Any]] = {}
    for one in found["works"] if found else ():
        most[one["work"]] = max(one, most.get(one["work"], one), key=lambda work: int(work["files"]))
    for work, one in most.items():
        title = f"{large_jobs.WORKS[work].told}, {one['files']:,} files: peak memory over idle"
        yield title, f"<= {large_jobs.AIM_BYTES / 1e6:.0f} MB", f"{one['over_idle'] / 1e6:.0f} MB"


def _bare_target(table: Mapping[str, Any]) -> str:
    return "<= 0.8" if table["table"] == "directories" else "<= 1.10"


def _task(found: dict[str, Any] | None, delivery: str) -> str:
    if found is None:
        return "not measured"
    commits = [one["commit"] for one in found["ours"][delivery]]
    return f"{max(sum(one['calls'].values()) for one in commits)}; {max(one['round_trips'] for one in commits)}"


def picture(_results: Results) -> str:
    """The scaling plot, where it was drawn."""
    if not scaling.PICTURE.exists():
        return _missing("benchmarks/scaling.py")
    return "SCALING"


PLACES: Final[dict[str, Callable[[Results], str]]] = {
    "targets": targets,
    "far": lambda results: comparison(results, _FAR),
    "near": lambda results: comparison(results, _NEAR),
    "many": lambda results: comparison(results, _MANY),
    "no-op": lambda results: comparison(results, "compare-1000x1000x100-no-op"),
    "scale": lambda results: simple(results, scale.NAME, lambda found: scale.rows(found["shapes"]), "scale"),
    "overwrite": lambda results: simple(results, overwrite.NAME, overwrite.rows, "overwrite"),
    "large-jobs": lambda results: simple(results, large_jobs.NAME, large_jobs.rows, "large_jobs"),
    "rate-cap": lambda results: simple(
        results, rate_cap.NAME, lambda found: rate_cap.rows(found["latencies"]), "rate_cap"
    ),
    "publish-elsewhere": lambda results: simple(
        results, publish_elsewhere.NAME, lambda found: publish_elsewhere.rows(found["stores"]), "publish_elsewhere"
    ),
    "calls-a-file": lambda results: simple(results, calls_a_file.NAME, calls_a_file.rows, "calls_a_file"),
    "task-commit": lambda results: simple(results, task_commit.NAME, task_commit.rows, "task_commit"),
    "spark-write": lambda results: simple(
        results, spark_write.NAME, lambda found: spark_write.rows(found["tables"]), "spark_write"
    ),
    "spark-commit": lambda results: simple(results, spark_commit.NAME, spark_commit.rows, "spark_commit"),
    "spark-overwrite": lambda results: simple(results, spark_overwrite.NAME, spark_overwrite.rows, "spark_overwrite"),
    "adls-rename": lambda results: simple(results, client_cpu.ADLS_RENAME, client_cpu.rows, "adls_rename"),
    "s3-complete": lambda results: simple(results, client_cpu.S3_COMPLETE, client_cpu.rows, "s3_complete"),
    "s3-overwrite": lambda results: simple(results, s3_overwrite.NAME, s3_overwrite.rows, "s3_overwrite"),
    "gcs-move": lambda results: simple(results, client_cpu.GCS_MOVE, client_cpu.rows, "gcs_move"),
    "http-split": lambda results: simple(results, client_cpu.HTTP_SPLIT, client_cpu.split_rows, "http_split"),
    "ten-million": lambda results: simple(results, client_cpu.TEN_MILLION, client_cpu.ten_million_rows, "ten_million"),
    "clients-gcs": lambda results: clients(results, "gcs"),
    "clients-adls": lambda results: clients(results, "adls"),
    "clients-s3": lambda results: clients(results, "s3"),
    "suites": suites,
    "scaling": picture,
}


def filled(text: str, results: Results, *, images: str) -> str:
    """A page with every marked place filled.

    Args:
        text: The page.
        results: What was kept, by name.
        images: The way from the page to docs/images.

    Raises:
        ValueError: The page marks a place that is unknown, or no end.
    """
    if text.count("<!-- measured: ") != len(_PLACE.findall(text)):
        raise ValueError("a marked place has no <!-- end measured -->")

    def fill(place: re.Match[str]) -> str:
        name = place[2]
        if name not in PLACES:
            raise ValueError(f"there is no measurement {name!r}: one of {', '.join(PLACES)}")
        image = f"![Files against seconds for a job commit]({images}/scaling.png)"
        made = PLACES[name](results).replace("SCALING", image)
        return f"{place[1]}\n{made}\n\n{place[4]}"

    return _PLACE.sub(fill, text)


def _missing(command: str) -> str:
    return f"Not measured yet: `{command}`."


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes what was measured into the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is out of date")
    arguments = parser.parse_args()
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text, lambda name: kept(name, RESULTS), images=images_from(page))
        if new != text:
            stale.append(page)
            if not arguments.check:
                page.write_text(new, encoding="utf-8")
    if arguments.check and stale:
        raise SystemExit(f"out of date: {', '.join(page.name for page in stale)}; run benchmarks/report.py")
    print(f"changed: {', '.join(page.name for page in stale) or 'nothing'}")


def images_from(page: Path) -> str:
    """The way from a page to docs/images."""
    return Path(os.path.relpath(_DOCS / "images", page.parent)).as_posix()


if __name__ == "__main__":
    main()

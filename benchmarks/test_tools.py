"""The scripts, in small; and the report that fills in the documentation."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import large_jobs, overwrite, rate_cap, report, scale, scaling, task_commit
from benchmarks.commit_worker import Shape, prepare_apart
from benchmarks.compare_java import OURS, Java, Ours, Ratio, Work, lines, ratio, table, take_turns
from benchmarks.kept import RESULTS, keep, kept, machine
from benchmarks.traced_store import Span, round_trips

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
MISSING = [
    what
    for what, found in {
        "a Java compiler": shutil.which("javac"),
        "PySpark, which brings Hadoop": importlib.util.find_spec("pyspark"),
        "Linux": sys.platform == "linux",
    }.items()
    if not found
]
SIDES: dict[str, list[dict[str, Any]]] = {
    OURS: [{"wall_s": 1.0, "cpu_s": 1.0, "calls": {"all": 3}, "peak_rss_bytes": 10_000_000}] * 2,
    "manifest, 32 threads": [
        {"wall_s": wall, "cpu_s": 2.0, "calls": {"open": 1, "rename": 4}, "peak_rss_bytes": 90_000_000}
        for wall in (4.0, 2.0)
    ],
    "v1": [
        {"wall_s": wall, "cpu_s": 0.0, "calls": {"rename": 9}, "peak_rss_bytes": 80_000_000} for wall in (2.0, 10.0)
    ],
}


# --- Comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_op", [False, True])
@on_linux
def test_our_side_commits(tmp_path: Path, no_op: bool) -> None:
    worker = Ours(tmp_path, uvloop=False, warm_ups=0)
    try:
        measured = worker.commit(Work.of("3x4x2", no_op=no_op))
    finally:
        worker.close()
    assert measured["wall_s"] > 0
    assert measured["peak_rss_bytes"] > measured["idle_rss_bytes"] // 2
    # Without a latency the local store is used as it is, and only counted by the engine.
    assert set(measured["calls"]) >= ({"rename", "open"} if no_op else {"all"})
    assert "job_stage_rename_files" in measured["stages"]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    if MISSING:
        pytest.skip(f"missing: {', '.join(MISSING)}")
    with pytest.MonkeyPatch.context() as environment:
        # Starts in half the time; what it measures here is no claim.
        environment.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")
        side = Java(tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("java"), warm_ups=0)
    yield side
    side.close()


@pytest.mark.java
def test_both_sides_commit_the_same_tree(java: Java, tmp_path: Path) -> None:
    ours = Ours(tmp_path, uvloop=False, warm_ups=0)
    try:
        sides = take_turns(java, {OURS: ours}, Work.of("5x2x2", 1), [2], v1=True, rounds=1)
    finally:
        ours.close()
    assert list(sides) == [OURS, "manifest, 2 threads", "v1"]
    assert all(len(measured) == 1 for measured in sides.values())
    assert all(one["wall_s"] >= 0.001 for measured in sides.values() for one in measured)
    # Each file once, and the marker that Hadoop writes under another name first.
    assert sides["manifest, 2 threads"][0]["calls"]["rename"] == 11
    assert sides[OURS][0]["calls"]["rename"] >= 10
    assert "the best of Java's" in table(Work.of("5x2x2", 1), sides)


@pytest.mark.java
def test_hadoops_task_commit_takes_28_calls(java: Java) -> None:
    task = java.commit("task", Work(1, 10, 10, 0, no_op=False), 2)
    assert sum(task["calls"].values()) == 28


def test_ratios_are_those_of_each_round() -> None:
    assert ratio(SIDES, ["manifest, 32 threads"], "wall_s") == Ratio(0.375, 0.25, 0.5)
    # The best of the first round is v1, of the second the manifest committer.
    assert ratio(SIDES, ["manifest, 32 threads", "v1"], "wall_s") == Ratio(0.5, 0.5, 0.5)
    assert str(ratio(SIDES, ["v1"], "cpu_s")) == ""
    assert [line.cells[0] for line in lines(10, SIDES)] == ["1.00", "3.00", "6.00", ""]


def test_latencies_are_whole_milliseconds() -> None:
    with pytest.raises(SystemExit, match="whole milliseconds"):
        Work.of("1x1x1", 0.5)


# --- Scripts of our side ------------------------------------------------------------------------------------------


@on_linux
def test_scale(tmp_path: Path) -> None:
    target = tmp_path / "scale.json"
    _run("scale.py", "--shapes", "2x50x5", "--rounds", "1", "--root", str(tmp_path), "--json", str(target))
    found = json.loads(target.read_text())
    assert [shape["files"] for shape in found["shapes"]] == [100]
    assert all(shape["cpu_s"] > 0 for shape in found["shapes"])
    assert len(scale.rows(found["shapes"] * 2)) == 3
    assert found["idle_rss_bytes"][0] > 5_000_000


@on_linux
def test_overwrite(tmp_path: Path) -> None:
    target = tmp_path / "overwrite.json"
    _run(
        "overwrite.py", "--shape", "2x20x5", "--old", "200,400", "--rounds", "1", "--root", str(tmp_path),
        "--json", str(target),
    )  # fmt: skip
    found = json.loads(target.read_text())
    assert len(overwrite.rows(found)) == 1 + 4 + 2
    assert found["stores"]["no-op store"]["overwrite"]["calls"] > found["stores"]["no-op store"]["append"]["calls"]


@on_linux
@pytest.mark.parametrize("work", large_jobs.WORKS)
def test_large_jobs(tmp_path: Path, work: str) -> None:
    target = tmp_path / "large-jobs.json"
    _run(
        "large_jobs.py", "--files", "40,80", "--works", work, "--task-files", "10", "--directories", "4",
        "--rounds", "1", "--root", str(tmp_path), "--json", str(target),
    )  # fmt: skip
    found = json.loads(target.read_text())
    assert [one["work"] for one in found["works"]] == [work, work]
    assert len(large_jobs.rows(found)) == 3


@on_linux
def test_rate_cap(tmp_path: Path) -> None:
    shape = Shape(destination=str(tmp_path / "job"), tasks=10, files=50, directories=4, no_op=True, rate=300.0)
    prepare_apart(shape)
    measured = asyncio.run(rate_cap.commit(shape, shape.rate))
    assert measured["share"] > 0
    # A machine that stops between a permit and its call lets one more burst catch up, as the store sees it.
    assert 0 < measured["most_in_a_second"] <= shape.rate + 2 * rate_cap.BURST


def test_share_of_a_cap() -> None:
    # A power of two, so that the sums of floats are exact.
    starts = [number / 128 for number in range(385)]
    assert rate_cap.share_of_cap(starts, 128) == pytest.approx(1.0, abs=0.01)
    assert rate_cap.share_of_cap(starts, 256) == pytest.approx(0.5, abs=0.01)
    assert rate_cap.most_within(starts) == 128
    with pytest.raises(ValueError, match="within 1 s"):
        rate_cap.share_of_cap(starts[:50], 100)


@pytest.mark.parametrize("delivery", task_commit.DELIVERIES)
def test_a_task_commit_waits_for_few_round_trips(tmp_path: Path, delivery: Any) -> None:
    told = asyncio.run(task_commit.ours(delivery, 10, 5, tmp_path / "job"))
    assert sum(told["commit"]["calls"].values()) < 10
    assert told["commit"]["round_trips"] <= 2
    assert told["setup_and_writing"]["calls"]["open_writer"] == 10


def test_round_trips_are_the_longest_chain_of_calls() -> None:
    assert round_trips([]) == 0
    # Two at once, then one that waited for both, then one that began while that ran.
    spans = [Span("a", 0, 2), Span("b", 0, 3), Span("c", 3, 5), Span("d", 4, 6)]
    assert round_trips(spans) == 2
    assert round_trips([Span("a", n, n + 1) for n in range(5)]) == 5


# --- Report -------------------------------------------------------------------------------------------------------


def test_the_documentation_says_what_was_measured() -> None:
    for page in report.PAGES:
        text = page.read_text(encoding="utf-8")
        assert report.filled(text, kept, images=report.images_from(page)) == text, "run benchmarks/report.py"


def test_every_measurement_is_kept_with_its_machine() -> None:
    for file in RESULTS.glob("*.json"):
        found = json.loads(file.read_text(encoding="utf-8"))
        assert found["name"] == file.stem
        assert {"date", "commit", "cores", "python", "versions"} <= found["machine"].keys()


def test_a_page_is_filled_from_results(tmp_path: Path) -> None:
    work = Work.of("1000x10x100", 20)
    about = {**machine(), "java": "openjdk 17"}
    keep(work.key, {"work": str(work), **work._asdict(), "machine": about, "sides": SIDES}, file=tmp_path / "a.json")
    found = kept("a", tmp_path)
    page = "before\n<!-- measured: far -->\nold\n<!-- end measured -->\nafter\n"
    filled = report.filled(page, {work.key: found}.get, images="images")
    assert "old" not in filled
    assert filled.startswith("before\n<!-- measured: far -->\n")
    assert filled.endswith("<!-- end measured -->\nafter\n")
    assert "| manifest, 32 threads | 3.00 | 200.0 | 5 | 90 | 0.38 (0.25 to 0.50) | 0.50 (0.50 to 0.50) |" in filled
    assert "2 rounds" in filled
    assert "openjdk 17" in filled
    assert report.filled(filled, {work.key: found}.get, images="images") == filled
    assert "Not measured yet" in report.filled(filled, lambda _name: None, images="images")
    aims = report.filled(page.replace("far", "targets"), {work.key: found}.get, images="images")
    assert "| job commit 1000x10x100, 20 ms a call, 32 threads | <= 0.20 | 0.38 (0.25 to 0.50) |" in aims


def test_a_page_with_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no measurement 'nothing'"):
        report.filled("<!-- measured: nothing -->\n<!-- end measured -->", kept, images="")
    with pytest.raises(ValueError, match="no <!-- end measured -->"):
        report.filled("<!-- measured: far -->\n", kept, images="")


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    points = [{"files": files, "sides": SIDES} for files in (1_000, 10_000)]
    picture = tmp_path / "images" / "scaling.png"
    scaling.draw({"latency_ms": 20.0, "points": points}, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    before = picture.read_bytes()
    scaling.draw({"latency_ms": 20.0, "points": points}, picture)
    assert picture.read_bytes() == before


def _run(script: str, *arguments: str) -> None:
    command = [sys.executable, str(Path(report.__file__).parent / script), *arguments]
    subprocess.run(command, check=True, capture_output=True)

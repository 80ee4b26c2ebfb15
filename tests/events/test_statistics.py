"""Counting and timing by Hadoop's rules."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.events import Statistics, names
from committer.records.statistics import IOStatistics, MeanStatistic
from committer.testing.virtual_time import VirtualRuntime

ROOT = Path(__file__).parent.parent.parent
# What Hadoop counts in its manifest committer, in S3A, and in no committer; and what is ours.
OF_S3A = {names.COMMITTER_COMMITS_COMPLETED, names.COMMITTER_MATERIALIZE_FILE, names.MULTIPART_UPLOAD_PART_PUT}
ELSEWHERE = {names.OP_CREATE, names.OP_GET_CONTENT_SUMMARY, names.OP_OPEN, names.OP_HSYNC, names.OP_LINK}
SUFFIXES = {names.FAILURES, names.MINIMUM, names.MAXIMUM, names.MEAN}
OURS = {names.COMMITTER_STALE_METADATA, names.STORE_IO_REQUEST, names.STORE_IO_RETRY, names.STORE_IO_THROTTLED}


def all_names() -> dict[str, str]:
    return {key: value for key, value in vars(names).items() if key.isupper()}


def test_every_name_is_counted_somewhere() -> None:
    sources = [path.read_text() for path in (ROOT / "committer").rglob("*.py") if path.name != "names.py"]
    used = set(re.findall(r"names\.([A-Z_]+)", "".join(sources)))
    used |= {key for key, value in all_names().items() if any(f'= "{value}"' in source for source in sources)}
    used |= {"FAILURES", "MINIMUM", "MAXIMUM", "MEAN"}
    assert set(all_names()) - used == set()


def test_the_names_are_hadoops() -> None:
    java = ROOT / "tests/fixtures/java-manifest-committer/mr-job/_SUCCESS"
    counted = set(json.loads(java.read_text())["iostatistics"]["counters"])
    others = {*OF_S3A, *ELSEWHERE, *SUFFIXES, *OURS}
    rest = set(all_names().values()) - counted - others
    assert {name for name in rest if not name.startswith("object_")} == set()


def test_nothing_counted_is_an_empty_snapshot() -> None:
    statistics = Statistics()
    statistics.count("a", 0)
    assert statistics.snapshot() == IOStatistics()
    assert statistics.counter("a") == statistics.counter("b") == 0


def test_a_sample_goes_to_all_four_maps_under_its_bare_name() -> None:
    statistics = Statistics()
    for value in (5, 2, 9):
        statistics.sample("committer_task_file_count", value)
    assert statistics.snapshot() == IOStatistics(
        counters={"committer_task_file_count": 16},
        minimums={"committer_task_file_count": 2},
        maximums={"committer_task_file_count": 9},
        meanstatistics={"committer_task_file_count": MeanStatistic(3, 16)},
    )


def test_a_sample_of_nothing_is_a_sample() -> None:
    statistics = Statistics()
    statistics.sample("y", 0)
    assert statistics.snapshot() == IOStatistics(
        minimums={"y": 0}, maximums={"y": 0}, meanstatistics={"y": MeanStatistic(1, 0)}
    )


async def test_durations_are_whole_milliseconds() -> None:
    runtime = VirtualRuntime()
    statistics = Statistics(runtime)
    for seconds in (0.0129, 0.002, 1.5):
        with statistics.timed("op_delete"):
            await runtime.sleep(seconds)
    assert statistics.snapshot() == IOStatistics(
        counters={"op_delete": 3},
        minimums={"op_delete.min": 2},
        maximums={"op_delete.max": 1500},
        meanstatistics={"op_delete.mean": MeanStatistic(3, 1514)},
    )


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()])
async def test_a_failure_counts_twice_and_is_timed_apart(error: BaseException) -> None:
    runtime = VirtualRuntime()
    statistics = Statistics(runtime)
    with pytest.raises(type(error)), statistics.timed("op_delete"):
        await runtime.sleep(0.25)
        raise error
    assert statistics.snapshot() == IOStatistics(
        counters={"op_delete": 1, "op_delete.failures": 1},
        minimums={"op_delete.failures.min": 250},
        maximums={"op_delete.failures.max": 250},
        meanstatistics={"op_delete.failures.mean": MeanStatistic(1, 250)},
    )


def test_a_wait_is_timed_and_not_counted() -> None:
    statistics = Statistics()
    statistics.duration("store_io_rate_limited", 0.04)
    assert statistics.snapshot() == IOStatistics(
        minimums={"store_io_rate_limited.min": 40},
        maximums={"store_io_rate_limited.max": 40},
        meanstatistics={"store_io_rate_limited.mean": MeanStatistic(1, 40)},
    )


def test_a_snapshot_is_a_copy() -> None:
    statistics = Statistics()
    statistics.sample("a", 1)
    snapshot = statistics.snapshot()
    statistics.sample("a", 1)
    assert snapshot.counters == {"a": 1}
    assert snapshot.meanstatistics == {"a": MeanStatistic(1, 1)}


def test_merging_follows_hadoops_rules() -> None:
    statistics = Statistics()
    statistics.count("a", 5)
    statistics.merge(IOStatistics(gauges={"g": 2}))
    statistics.sample("s", 10)
    statistics.merge(
        IOStatistics(
            counters={"a": 3, "b": 1, "negative": -7, "zero": 0},
            gauges={"g": 4, "h": -1},
            minimums={"s": 20, "unset": -1, "t": 3, "zero": 0},
            maximums={"s": 20, "unset": -1, "t": 4, "zero": 0},
            meanstatistics={"s": MeanStatistic(2, 40), "t": MeanStatistic(1, 3), "unset": MeanStatistic(0, 0)},
        )
    )
    assert statistics.snapshot() == IOStatistics(
        counters={"a": 8, "b": 1, "s": 10},
        gauges={"g": 6, "h": -1},
        minimums={"s": 10, "t": 3, "zero": 0},
        maximums={"s": 20, "t": 4, "zero": 0},
        meanstatistics={"s": MeanStatistic(3, 50), "t": MeanStatistic(1, 3)},
    )


def test_many_done_at_once_are_as_many_done_one_by_one() -> None:
    at_once, one_by_one = Statistics(), Statistics()
    for seconds, times in ((0.004, 3), (0.002, 1), (0.009, 2)):
        at_once.done("t", seconds, times)
        for _ in range(times):
            one_by_one.done("t", seconds)
    assert at_once.snapshot() == one_by_one.snapshot()
    assert at_once.snapshot().meanstatistics["t.mean"] == MeanStatistic(6, 32)


def test_the_smaller_minimum_stays_whatever_the_order() -> None:
    # Java replaces the minimum by the later one.
    for first, second in ((3, 8), (8, 3)):
        statistics = Statistics()
        statistics.merge(IOStatistics(minimums={"x.min": first}, maximums={"x.max": first}))
        statistics.merge(IOStatistics(minimums={"x.min": second}, maximums={"x.max": second}))
        assert statistics.snapshot().minimums == {"x.min": 3}
        assert statistics.snapshot().maximums == {"x.max": 8}


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1000), st.integers(0, 3))))
def test_merging_parts_gives_what_counting_at_one_place_gives(samples: list[tuple[str, int, int]]) -> None:
    whole, parts = Statistics(), [Statistics() for _ in range(4)]
    for name, value, part in samples:
        whole.sample(name, value)
        parts[part].sample(name, value)
    merged = Statistics()
    for statistics in parts:
        merged.merge(statistics.snapshot())
    assert merged.snapshot() == whole.snapshot()

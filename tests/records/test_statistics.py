"""Statistics snapshots: aggregation as Hadoop's, without its replaced minimums."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import RecordError
from committer.events import Statistics
from committer.records.manifest import decode_task_manifest
from committer.records.statistics import IOStatistics, MeanStatistic, statistics_of
from committer.records.success import decode_success

MR_JOB = Path(__file__).parents[1] / "fixtures" / "java-manifest-committer" / "mr-job"

keys = st.sampled_from("abc")
counts = st.dictionaries(keys, st.integers(0, 9))
extremes = st.dictionaries(keys, st.integers(-1, 9))
snapshots = st.builds(
    IOStatistics,
    counts,
    counts,
    extremes,
    extremes,
    st.dictionaries(keys, st.builds(MeanStatistic, st.integers(1, 9), st.integers(0, 99)) | st.just(MeanStatistic())),
)


def merged(*parts: IOStatistics) -> IOStatistics:
    total = Statistics()
    for part in parts:
        total.merge(part)
    return total.snapshot()


@given(snapshots, snapshots, snapshots)
def test_merging_is_order_free_and_changes_only_its_target(a: IOStatistics, b: IOStatistics, c: IOStatistics) -> None:
    before = copy.deepcopy((a, b, c))
    assert merged(a, b, c) == merged(c, a, b) == merged(merged(b, c), a)
    assert (a, b, c) == before
    assert merged(a, b).compact() == merged(a.compact(), b.compact()).compact()


def test_compact_keeps_what_was_measured() -> None:
    full = IOStatistics(
        counters={"a": 0, "b": 1},
        gauges={"a": 0, "b": -1},
        minimums={"a": -1, "b": 0},
        maximums={"a": -1, "b": 0},
        meanstatistics={"a": MeanStatistic(0, 0), "b": MeanStatistic(2, 0)},
    )
    assert full.compact() == IOStatistics({"b": 1}, {"b": -1}, {"b": 0}, {"b": 0}, {"b": MeanStatistic(2, 0)})


def test_two_snapshots_share_nothing() -> None:
    one, two = IOStatistics(), IOStatistics()
    one.counters["a"] = 1
    assert two == IOStatistics()


def test_java_task_statistics_add_up_to_java_job_statistics() -> None:
    tasks = [
        decode_task_manifest(path.read_bytes(), source=path.name).statistics()
        for path in sorted((MR_JOB / "manifests").iterdir())
    ]
    total = merged(*tasks)
    job = decode_success((MR_JOB / "_SUCCESS").read_bytes(), source="_SUCCESS").statistics()
    # What only tasks do is in the job's statistics exactly as often as the tasks together did it.
    for name in ("task_stage_setup", "task_stage_scan_directory", "op_list_status"):
        measured = job.counters[name] - (1 if name == "op_list_status" else 0)
        assert total.counters[name] == measured > 0
    assert total.maximums["task_stage_commit.max"] == max(one.maximums["task_stage_commit.max"] for one in tasks)


def test_members_keep_hadoops_order() -> None:
    expected = ["counters", "gauges", "minimums", "maximums", "meanstatistics"]
    assert list(json.loads(msgspec.json.encode(IOStatistics()))) == expected


def test_statistics_of_a_record() -> None:
    assert statistics_of(None, source="x") == IOStatistics()
    assert statistics_of(msgspec.Raw(b"null"), source="x") == IOStatistics()
    assert statistics_of(msgspec.Raw(b'{"gauges": {"a": 1}, "more": 1}'), source="x") == IOStatistics(gauges={"a": 1})
    with pytest.raises(RecordError) as raised:
        statistics_of(msgspec.Raw(b'{"gauges": null}'), source="x")
    assert (raised.value.field, raised.value.path) == ("iostatistics.gauges", "x")

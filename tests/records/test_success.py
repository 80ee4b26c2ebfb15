"""`_SUCCESS` files and summary reports: Java's own load and print the same, others load as far as they go."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from committer.errors import RecordError
from committer.records.statistics import IOStatistics, MeanStatistic
from committer.records.success import SUCCESS_NAME, SuccessData, decode_success, encode_success, hadoop_date

FIXTURES = Path(__file__).parents[1] / "fixtures" / "java-manifest-committer"
JAVA_RECORDS = sorted(path for path in FIXTURES.rglob("*") if path.name == "_SUCCESS" or "summary" in path.name)
SOURCE = "file:/dest/_SUCCESS"


def stored(**members: Any) -> bytes:
    return json.dumps({"name": SUCCESS_NAME, **members}).encode()


def test_java_records_were_found() -> None:
    assert len(JAVA_RECORDS) == 9


@pytest.mark.parametrize("path", JAVA_RECORDS, ids=lambda path: path.name)
def test_java_records_load_and_print_as_java_printed_them(path: Path) -> None:
    data = path.read_bytes()
    loaded = decode_success(data, source=str(path))
    assert encode_success(loaded) == data
    raw = json.loads(data)
    assert (loaded.success, loaded.jobId, loaded.filenames) == (raw["success"], raw["jobId"], raw["filenames"])
    assert loaded.statistics().maximums == raw["iostatistics"]["maximums"]


def test_only_the_name_is_required() -> None:
    loaded = decode_success(stored(), source=SOURCE)
    assert loaded.success
    assert (loaded.jobId, loaded.filenames, loaded.diagnostics, loaded.lengths) == ("", [], {}, None)
    assert loaded.statistics() == IOStatistics()


def test_null_counts_as_absent_but_for_the_name() -> None:
    members = [name for name in SuccessData.__struct_fields__ if name != "name"]
    loaded = decode_success(stored(**dict.fromkeys(members)), source=SOURCE)
    assert encode_success(loaded) == encode_success(decode_success(stored(), source=SOURCE))
    assert decode_success(stored(diagnostics={"a": None, "b": "c"}), source=SOURCE).diagnostics == {"b": "c"}


def test_a_record_of_the_s3a_committers_loads() -> None:
    loaded = decode_success(
        stored(
            timestamp=1700000000000,
            date="Tue Nov 14 22:13:20 UTC 2023",
            committer="magic",
            description="Task committer attempt_1",
            metrics={"object_put_requests": 7},
            diagnostics={"fs.s3a.committer.name": "magic"},
            filenames=["/out/a b", "/out/c"],
            state="committed",
            stage="committer_commit_job",
            partCount=3,
        ),
        source=SOURCE,
    )
    assert (loaded.committer, loaded.state, loaded.metrics) == ("magic", "committed", {"object_put_requests": 7})
    assert loaded.filenames == ["/out/a b", "/out/c"]


def test_our_lengths_come_last_and_return() -> None:
    value = SuccessData(
        timestamp=1,
        date="d",
        jobId="j",
        description="x",
        filenames=["file:/a", "file:/b"],
        lengths=[1, 2**40],
        state="s",
        iostatistics=IOStatistics(),
    )
    data = encode_success(value)
    assert list(json.loads(data)) == [
        *("name", "timestamp", "success", "date", "hostname", "committer", "description", "jobId", "jobIdSource"),
        *("metrics", "diagnostics", "filenames", "iostatistics", "state", "lengths"),
    ]
    assert data.endswith(b'"lengths" : [ 1, 1099511627776 ]\n}')
    loaded = decode_success(data, source=SOURCE)
    assert (loaded.lengths, loaded.description, loaded.state) == ([1, 2**40], "x", "s")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", ""),
        (b"PAR1", ""),
        (b"{}", "name"),
        (b'{"name": null}', "name"),
        (b'{"name": "other/1"}', "name"),
        (stored() + b"x", ""),
        (stored(success="yes"), "success"),
        (stored(timestamp="now"), "timestamp"),
        (stored(filenames=[1]), "filenames[0]"),
        (stored(filenames="a"), "filenames"),
        (stored(filenames=["a"], lengths=[]), "lengths"),
        (stored(lengths=[1]), "lengths"),
        (stored(filenames=["a", "b"], lengths=[1, -1]), "lengths[1]"),
        (stored(filenames=["a"], lengths=["1"]), "lengths[0]"),
    ],
)
def test_what_is_no_success_record_fails_naming_file_and_member(data: bytes, field: str) -> None:
    with pytest.raises(RecordError) as raised:
        decode_success(data, source=SOURCE)
    assert (raised.value.field, raised.value.path) == (field, SOURCE)


def test_an_error_text_with_an_undecodable_name_can_be_saved() -> None:
    data = encode_success(SuccessData(diagnostics={"exception": "no file \udcff\n\x01"}))
    assert decode_success(data, source=SOURCE).diagnostics == {"exception": "no file ?\n\x01"}


def test_dates() -> None:
    moment = datetime(2026, 11, 21, 3, 11, 3, 58903, timezone(timedelta(hours=1)))
    assert hadoop_date(moment) == "2026-11-21T02:11:03.058903Z[UTC]"
    assert hadoop_date(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000Z[UTC]"


def test_statistics_given_are_what_is_written() -> None:
    value = IOStatistics(counters={"a": 1}, minimums={"a.min": -1}, meanstatistics={"a.mean": MeanStatistic(1, 3)})
    loaded = decode_success(encode_success(SuccessData(iostatistics=value)), source=SOURCE)
    assert loaded.statistics() == value

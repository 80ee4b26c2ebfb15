"""`.pending` and `.pendingset` files: Java's load and come back with nothing lost, damaged ones are told so."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from committer.errors import RecordError
from committer.records.pending_set import (
    EtagForm,
    PartEtag,
    PendingCommit,
    PendingSet,
    decode_pending,
    decode_pending_set,
    encode_pending,
    encode_pending_set,
    java_date,
)
from committer.records.statistics import IOStatistics

FIXTURES = Path(__file__).parents[1] / "fixtures" / "java-magic-committer"
JAVA_PENDING = sorted(FIXTURES.rglob("*.pending"))
JAVA_SETS = sorted(FIXTURES.rglob("*.pendingset"))
SOURCE = "s3a://bucket/table/__magic_job-J/x"
GOOD: dict[str, Any] = {
    "version": 2,
    "uri": "s3a://bucket/table/x",
    "uploadId": "U",
    "bucket": "bucket",
    "destinationKey": "table/x",
    "etags": ["a"],
    "length": 1,
}


def stored(**members: Any) -> bytes:
    return json.dumps(GOOD | members).encode()


def stored_set(*commits: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"version": 3, "jobId": "J", "commits": list(commits)} | members).encode()


def without_derived(record: Any) -> Any:
    """A record of Java's but for what it derives (`partCount`) and what only this engine writes of a set."""
    if isinstance(record, dict):
        return {key: without_derived(value) for key, value in record.items() if key != "partCount"}
    return [without_derived(one) for one in record] if isinstance(record, list) else record


def form_of(path: Path) -> EtagForm:
    return "texts" if "3.3.6" in path.parent.name else "objects"


def test_java_records_were_found() -> None:
    assert (len(JAVA_PENDING), len(JAVA_SETS)) == (3, 3)


@pytest.mark.parametrize("path", JAVA_PENDING, ids=lambda path: path.parent.name)
def test_a_pending_upload_of_java_comes_back(path: Path) -> None:
    pending = decode_pending(path.read_bytes(), source=str(path))
    again = json.loads(encode_pending(pending, etags=form_of(path)))
    assert again == without_derived(json.loads(path.read_bytes()))
    assert (pending.bucket, pending.destinationKey) == ("bucket", "table/a=1/x y.csv")


@pytest.mark.parametrize("path", JAVA_SETS, ids=lambda path: path.parent.name)
def test_a_pending_set_of_java_comes_back(path: Path) -> None:
    record = decode_pending_set(path.read_bytes(), source=str(path))
    again = json.loads(encode_pending_set(record, etags=form_of(path)))
    # Hadoop keeps extra data of a set in memory, and never writes it.
    assert again.pop("extraData") == {}
    assert again == without_derived(json.loads(path.read_bytes()))
    assert {pending.taskId for pending in record.commits} == {"attempt_202401010000_0001_m_000000_0"}


def test_both_shapes_of_etags_are_read() -> None:
    new, old = (FIXTURES / name / "x_y.csv.pending" for name in ("hadoop-3.5.0-crc32c", "hadoop-3.3.6"))
    assert decode_pending(new.read_bytes(), source="new").etags == (
        PartEtag('"5d41402abc4b2a76b9719d911017c592"', "CRC32C", "mnG7TA=="),
    )
    assert decode_pending(old.read_bytes(), source="old").etags == (
        PartEtag("5d41402abc4b2a76b9719d911017c592"),
        PartEtag("7d793037a0760186574b0282f2f435e7"),
    )
    mixed = decode_pending(stored(etags=["a", {"etag": "b"}]), source=SOURCE)
    assert [part.etag for part in mixed.etags] == ["a", "b"]


def test_what_java_may_leave_out_is_empty() -> None:
    pending = decode_pending(stored(iostatistics=None, date=None, extraData=None, unknown=[1]), source=SOURCE)
    assert (pending.jobId, pending.taskId, pending.date, pending.extraData) == ("", "", "", {})
    assert pending.statistics() == IOStatistics()
    record = decode_pending_set(b'{"version":2}', source=SOURCE)
    assert (record.jobId, record.commits) == ("", ())


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"version": 3}, "version"),
        ({"version": "2"}, "version"),
        ({"bucket": ""}, "bucket"),
        ({"destinationKey": ""}, "destinationKey"),
        ({"uploadId": None}, "uploadId"),
        ({"length": -1}, "length"),
        ({"length": 1 << 63}, "length"),
        ({"length": "1"}, "length"),
        ({"etags": None}, "etags"),
        ({"etags": []}, "etags"),
        ({"etags": ["a"] * 10_001}, "etags"),
        ({"etags": ["a", ""]}, "etags[1]"),
        ({"etags": ['""']}, "etags[0]"),
        ({"etags": [{"checksum": "x"}]}, "etags[0].etag"),
        ({"etags": [3]}, "etags[0]"),
        ({"extraData": {"a": 1}}, "extraData"),
    ],
)
def test_a_damaged_pending_upload_is_told_by_its_member(members: dict[str, Any], field: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode_pending(stored(**members), source=SOURCE)
    assert caught.value.field.startswith(field)
    assert SOURCE in str(caught.value)
    if "version" not in members:
        with pytest.raises(RecordError) as caught:
            decode_pending_set(stored_set(GOOD, GOOD | {"destinationKey": "table/y"} | members), source=SOURCE)
        assert caught.value.field.startswith("commits[")
        assert field in caught.value.field


@pytest.mark.parametrize("missing", ["version", "uploadId", "bucket", "destinationKey", "etags", "length"])
def test_what_must_be_there(missing: str) -> None:
    members = {key: value for key, value in GOOD.items() if key != missing}
    with pytest.raises(RecordError, match=missing):
        decode_pending(json.dumps(members).encode(), source=SOURCE)


@pytest.mark.parametrize("data", [b"", b" ", b"x", b"[]", b"{}", b"\xff", b'{"version":2}{}', b"[" * 100_000])
def test_what_is_no_record(data: bytes) -> None:
    for decode in (decode_pending, decode_pending_set):
        with pytest.raises(RecordError):
            decode(data, source=SOURCE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "extraData"]), inner, max_size=9)
    ),
    max_leaves=12,
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from([*GOOD, "commits", "jobId", "extraData", "iostatistics"]), JSON))
def test_whatever_json_it_is_it_loads_or_is_refused(members: dict[str, Any]) -> None:
    for data, decode in (
        (json.dumps(GOOD | members).encode(), decode_pending),
        (stored_set(GOOD | members, **members), decode_pending_set),
    ):
        try:
            loaded = decode(data, source=SOURCE)
            loaded.statistics(source=SOURCE)
        except RecordError as error:
            assert SOURCE in str(error)


def test_a_set_names_each_destination_once() -> None:
    with pytest.raises(RecordError, match="another upload has the same destination: table/x") as caught:
        decode_pending_set(stored_set(GOOD, GOOD | {"uploadId": "V"}), source=SOURCE)
    assert caught.value.field == "commits[1].destinationKey"


@pytest.mark.parametrize("version", [0, 4, -1])
def test_a_set_of_another_version_is_told_so(version: int) -> None:
    with pytest.raises(RecordError, match="is not 3"):
        decode_pending_set(json.dumps({"version": version, "commits": 5}).encode(), source=SOURCE)
    with pytest.raises(RecordError, match="is not 2"):
        decode_pending_set(stored_set(GOOD | {"version": 9}), source=SOURCE)


def test_what_is_written_is_read() -> None:
    pending = PendingCommit(
        uri="s3a://bucket/table/%C3%BC",
        uploadId="U",
        bucket="bucket",
        destinationKey="table/ü",
        created=1,
        saved=1,
        date=java_date(datetime(2024, 1, 1, 12, tzinfo=UTC)),
        etags=(PartEtag('"a"', "SHA256", "c"), PartEtag('"b"')),
        extraData={"k": "v"},
        length=2**63 - 1,
    )
    assert pending.date == "Mon Jan 01 12:00:00 UTC 2024"
    again = decode_pending(encode_pending(pending), source=SOURCE)
    assert msgspec.structs.replace(again, iostatistics=None) == pending
    record = PendingSet(jobId="J", commits=(pending,), extraData={"task.attempt.id": "a"})
    read = decode_pending_set(encode_pending_set(record), source=SOURCE)
    assert (read.jobId, read.extraData) == ("J", {"task.attempt.id": "a"})
    assert [msgspec.structs.replace(one, iostatistics=None) for one in read.commits] == [pending]

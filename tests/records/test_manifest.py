"""Task manifests: Java's own load as they are, damaged ones fail with one error that names file and member."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import RecordError
from committer.paths import StorePath
from committer.records.hadoop_json import decode
from committer.records.manifest import (
    MANIFEST_TYPE,
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
    read_uris,
    relative_names,
)
from committer.records.statistics import IOStatistics, MeanStatistic

FIXTURES = Path(__file__).parents[1] / "fixtures" / "java-manifest-committer"
JAVA_MANIFESTS = [
    *sorted(FIXTURES.rglob("task_*-manifest.json")),
    FIXTURES / "failures" / "manifest-saved-after-4-failed-attempts.json",
]
DESTINATION = StorePath.of("/tmp/mc-fixture/dest")
SOURCE = "file:/x/task_x-manifest.json"


def stored(**members: Any) -> bytes:
    return json.dumps({"type": MANIFEST_TYPE, "version": 1, **members}, ensure_ascii=False).encode()


def file_entry(**members: Any) -> dict[str, Any]:
    return {"s": "file:/a", "d": "file:/b", "z": 1} | members


def relative_entries(value: TaskManifest, **where: Any) -> tuple[list[tuple[str, str, int, str | None]], list[str]]:
    """Files as source, destination, bytes and identity, and directories."""
    read = relative_names(value, **where)
    files = zip(read.sources, read.destinations, value.files, strict=True)
    return [(source, target, entry.z, entry.e or None) for source, target, entry in files], read.directories


def manifest(*files: FileEntry, directories: list[DirectoryEntry] | None = None) -> TaskManifest:
    return TaskManifest(jobId="j", files=list(files), directories=directories or [])


@pytest.mark.parametrize("path", JAVA_MANIFESTS, ids=lambda path: path.name)
def test_java_manifests_load_and_print_as_java_printed_them(path: Path) -> None:
    data = path.read_bytes()
    loaded = decode_task_manifest(data, source=str(path))
    assert encode_task_manifest(loaded) == data
    raw = json.loads(data)
    assert [entry.d for entry in loaded.files] == [entry["d"] for entry in raw["files"]]
    assert loaded.statistics().counters == raw["iostatistics"]["counters"]
    assert loaded.taskAttemptID == raw["taskAttemptID"]
    loaded.iostatistics = loaded.statistics()
    assert encode_task_manifest(loaded) == data


def test_java_manifests_were_found() -> None:
    assert len(JAVA_MANIFESTS) == 7


@pytest.mark.parametrize("path", JAVA_MANIFESTS, ids=lambda path: path.name)
def test_java_manifests_stay_below_their_destination(path: Path) -> None:
    loaded = decode_task_manifest(path.read_bytes(), source=str(path))
    root = StorePath.from_uri(loaded.taskAttemptDir).parent
    files, directories = relative_entries(loaded, destination=DESTINATION, source_root=root, source=str(path))
    assert len(files) == len(loaded.files)
    for (source, target, size, identity), entry in zip(files, loaded.files, strict=True):
        assert source.partition("/")[2] == target
        assert (DESTINATION / target) == StorePath.from_uri(entry.d)
        assert (size, identity) == (entry.z, entry.e)
    assert directories == [StorePath.from_uri(entry.d).relative_to(DESTINATION) for entry in loaded.directories]


def test_awkward_names_are_decoded() -> None:
    path = FIXTURES / "mr-job" / "manifests" / "task_202401010000_0001_m_000001-manifest.json"
    loaded = decode_task_manifest(path.read_bytes(), source=str(path))
    root = StorePath.from_uri(loaded.taskAttemptDir)
    files, _ = relative_entries(loaded, destination=DESTINATION, source_root=root, source=str(path))
    assert {target for _, target, _, _ in files} == {
        "nbsp=a\xa0b\u3000c/e\u0301.parquet",
        "city=São Paulo/part-00001 with space.parquet",
        "emoji=😀/part-00001.parquet",
        "q=what?#frag/100%.parquet",
        "sym=a+b&c;d,e@f!$'()~*/part[1]{2}^`|<>\"\\.parquet",
        "名前=東京/ファイル.parquet",
        "ts=2024-01-01 10%3A00%3A00/part-00001.parquet",
    }
    assert all(source == target for source, target, _, _ in files)


# What Java was given and what it did are the rows of manifest-load-cases.txt; the bytes are rebuilt from their names.
CASES: dict[str, bytes] = {
    "empty": b"",
    "notjson": b"hello",
    "wrongtype": stored(type=MANIFEST_TYPE.replace("/1", "/2")),
    "wrongversion": stored(version=2),
    "unknownfield": stored(files=[], directories=[], more={"a": [1, None]}),
    "minimal": b"{}",
    "nulliostats": stored(files=[], iostatistics=None),
    "noiostats": stored(files=[], directories=[]),
    "filesnull": stored(files=None),
    "dupdest": stored(files=[file_entry(), file_entry(s="file:/c")]),
    "negsize": stored(files=[file_entry(z=-1)]),
    "nosrc": stored(files=[{"d": "file:/b", "z": 1}]),
    "nosize": stored(files=[{"s": "file:/tmp/mc-fixture/dest/_temporary/a", "d": "file:/tmp/mc-fixture/dest/b"}]),
    "badtypedir": stored(directories=[{"d": "file:/tmp/mc-fixture/dest/zz", "t": 77, "l": 1}]),
    "negdir": stored(directories=[{"d": "file:/tmp/mc-fixture/dest/zy", "t": -5, "l": -9}]),
    "nulldir": stored(directories=[{"d": None, "t": 1, "l": 1}]),
    "tripleslash": stored(directories=[{"d": "file:///tmp/mc-fixture/dest/ts%20x", "t": 1, "l": 1}]),
    "rawspace": stored(directories=[{"d": "file:/tmp/mc-fixture/dest/ts y", "t": 1, "l": 1}]),
    "encodedunicode": stored(directories=[{"d": "file:/tmp/mc-fixture/dest/%E6%9D%B1", "t": 1, "l": 1}]),
    "noscheme": stored(directories=[{"d": "/tmp/mc-fixture/dest/noscheme", "t": 1, "l": 1}]),
    "extradata": stored(extraData={"a": "b"}),
    "trailing": stored() + b" trailing",
    "duplicatekey": stored().replace(b'"version": 1', b'"version": 7, "version": 1'),
    "bom": b"\xef\xbb\xbf" + stored(),
    "utf16etag": stored(files=[file_entry(e="X")]).replace(b'"X"', b'"\\ud83d\\ude00"'),
    "outsidedest": stored(directories=[{"d": "file:/tmp/mc-fixture/outside", "t": 1, "l": 1}]),
    "crossdestlevel": stored(directories=[{"d": "file:/tmp/mc-fixture/dest/l1/l2", "t": 0, "l": 1}]),
}
# The store's read refuses it before there are bytes.
NOT_BYTES = {"manifestdir"}
# Where this library is stricter than Java on purpose, and the member it names.
STRICTER = {"minimal": "type", "trailing": ""}
REFUSED_MEMBER = {
    "empty": "",
    "notjson": "",
    "wrongtype": "type",
    "wrongversion": "version",
    "filesnull": "files",
    "dupdest": "files[1].d",
    "negsize": "files[0].z",
    "nosrc": "files[0].s",
    "nulldir": "directories[0].d",
    "rawspace": "directories[0].d",
}


def java_cases() -> list[tuple[str, bool]]:
    rows = (FIXTURES / "manifest-load-cases.txt").read_text(encoding="utf-8").splitlines()
    return [(name, outcome.startswith("committed")) for name, _, outcome in (row.partition(" -> ") for row in rows)]


@pytest.mark.parametrize(("name", "accepted"), java_cases(), ids=lambda value: str(value))
def test_every_load_case_of_java(name: str, accepted: bool) -> None:
    if name in NOT_BYTES:
        assert not accepted
        return
    if accepted and name not in STRICTER:
        decode_task_manifest(CASES[name], source=SOURCE)
        return
    with pytest.raises(RecordError) as raised:
        decode_task_manifest(CASES[name], source=SOURCE)
    assert raised.value.field == {**REFUSED_MEMBER, **STRICTER}[name]
    assert raised.value.path == SOURCE
    assert SOURCE in str(raised.value)
    assert raised.value.field in str(raised.value)


def test_accepted_cases_mean_what_java_made_of_them() -> None:
    def entries(name: str) -> Any:
        loaded = decode_task_manifest(CASES[name], source=SOURCE)
        return relative_entries(loaded, destination=DESTINATION, source_root=DESTINATION / "_temporary", source=SOURCE)

    assert entries("nosize") == ([("a", "b", 0, None)], [])
    assert entries("badtypedir") == ([], ["zz"])
    assert entries("negdir") == ([], ["zy"])
    assert entries("tripleslash") == ([], ["ts x"])
    assert entries("encodedunicode") == ([], ["東"])
    assert entries("noscheme") == ([], ["noscheme"])
    assert entries("crossdestlevel") == ([], ["l1/l2"])
    assert decode_task_manifest(CASES["utf16etag"], source=SOURCE).files[0].e == "😀"
    assert decode_task_manifest(CASES["extradata"], source=SOURCE).extraData == {"a": "b"}
    # Java creates directories anywhere; here nothing outside the destination is touched.
    with pytest.raises(RecordError, match="does not lie below") as raised:
        entries("outsidedest")
    assert raised.value.field == "directories[0].d"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"[]", ""),
        (b"null", ""),
        (b"   \n", ""),
        (b"\xef\xbb\xbf", ""),
        (b'{"type": "' + MANIFEST_TYPE.encode() + b'"}', "version"),
        (b'{"version": 1}', "type"),
        (stored(type=None), "type"),
        (stored(version=2, files=[{"path": "file:/a"}]), "version"),
        (stored(files=[{"path": "file:/a"}]), "files[0].s"),
        (stored(version="1"), "version"),
        (stored()[:-1], ""),
        (stored() + stored(), ""),
        (stored(directories=None), "directories"),
        (stored(files={}), "files"),
        (stored(files=[None]), "files[0]"),
        (stored(files=[file_entry(), file_entry(d="file:/c", s="")]), "files[1].s"),
        (stored(files=[{"s": "file:/a", "z": 1}]), "files[0].d"),
        (stored(files=[file_entry(d=None)]), "files[0].d"),
        (stored(files=[file_entry(z=None)]), "files[0].z"),
        (stored(files=[file_entry(z=1.5)]), "files[0].z"),
        (stored(files=[file_entry(z="1")]), "files[0].z"),
        (stored(files=[file_entry(z=2**63)]), "files[0].z"),
        (stored(files=[file_entry(e=1)]), "files[0].e"),
        (stored(files=[file_entry(s="file:/%zz")]), "files[0].s"),
        (stored(files=[file_entry(s="a")]), "files[0].s"),
        (stored(files=[file_entry(d="file:/a?b")]), "files[0].d"),
        (stored(files=[file_entry(d="file:/a#b")]), "files[0].d"),
        (stored(files=[file_entry(d="file:/a%00")]), "files[0].d"),
        (stored(files=[file_entry(d="file:/a/%2e%2e/b")]), "files[0].d"),
        (stored(files=[file_entry(), file_entry(d="file:///b")]), "files[1].d"),
        (stored(files=[file_entry(), file_entry(d="/b")]), "files[1].d"),
        (stored(files=[file_entry(), file_entry(d="file:/x/../b")]), "files[1].d"),
        (stored(files=[file_entry(), file_entry(d="file:/%62")]), "files[1].d"),
        (stored(files=[file_entry(), file_entry(d="file:/b/")]), "files[1].d"),
        (stored(directories=[{"t": 1, "l": 1}]), "directories[0].d"),
        (stored(directories=[{"d": ""}]), "directories[0].d"),
        (stored(directories=[{"d": "file:/a", "t": "dir"}]), "directories[0].t"),
        (stored(jobId=None), "jobId"),
        (stored(extraData={"a": 1}), "extraData[...]"),
        (stored(jobId="X").replace(b"X", b"\xff"), ""),
        (stored(jobId="X").replace(b"X", b"\\ud83d"), ""),
        (stored(more=0).replace(b"0}", b"[" * 100_000), ""),
    ],
)
def test_bad_manifests_fail_naming_file_and_member(data: bytes, field: str) -> None:
    with pytest.raises(RecordError) as raised:
        decode_task_manifest(data, source=SOURCE)
    assert (raised.value.field, raised.value.path) == (field, SOURCE)
    assert raised.value.outcome == "unchanged"


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode))
def test_any_bytes_load_or_raise_the_one_error(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_task_manifest(data, source=SOURCE)


@given(st.data())
def test_a_damaged_java_manifest_loads_or_raises_the_one_error(data: st.DataObject) -> None:
    good = stored(files=[file_entry(e="é")], directories=[{"d": "file:/é", "t": 1, "l": 1}], iostatistics={})
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + data.draw(st.binary(max_size=3)) + good[at + data.draw(st.integers(0, 3)) :]
    try:
        loaded = decode_task_manifest(bad, source=SOURCE)
    except RecordError:
        return
    assert decode_task_manifest(encode_task_manifest(loaded), source=SOURCE).files == loaded.files


def test_accepted_though_odd() -> None:
    loaded = decode_task_manifest(
        stored(files=[file_entry(e="", more=1), file_entry(d="file:/B", e=None)], extraData=None) + b"\n \t\r\n",
        source=SOURCE,
    )
    assert [entry.e for entry in loaded.files] == ["", None]
    assert (loaded.extraData, loaded.directories, loaded.jobId) == ({}, [], "")
    assert loaded.statistics() == IOStatistics()


def test_statistics_are_decoded_only_when_asked_for() -> None:
    loaded = decode_task_manifest(stored(iostatistics={"counters": {"a": "many"}}), source=SOURCE)
    with pytest.raises(RecordError) as raised:
        loaded.statistics(source=SOURCE)
    assert (raised.value.field, raised.value.path) == ("iostatistics.counters[...]", SOURCE)
    loaded = decode_task_manifest(
        stored(iostatistics={"counters": {"a": 2}, "meanstatistics": {"a.mean": {"samples": 2, "sum": 5}}, "x": 1}),
        source=SOURCE,
    )
    assert loaded.statistics() == IOStatistics(counters={"a": 2}, meanstatistics={"a.mean": MeanStatistic(2, 5)})


def test_layout_of_what_is_written() -> None:
    value = TaskManifest(
        jobId="job_1_0001",
        taskID="t",
        taskAttemptID="a",
        taskAttemptDir="file:/d",
        files=[FileEntry("file:/a😀", "file:/é", 0), FileEntry('"},{"s":"\\', ',"d":"', 2**63 - 1, "e\n")],
        directories=[DirectoryEntry("file:/x", 0, 0)],
        iostatistics=IOStatistics(meanstatistics={"m": MeanStatistic(1, 2)}),
    )
    assert encode_task_manifest(value).decode() == (
        """{
  "extraData" : { },
  "type" : "org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1",
  "version" : 1,
  "jobId" : "job_1_0001",
  "jobAttemptNumber" : 0,
  "taskID" : "t",
  "taskAttemptID" : "a",
  "taskAttemptDir" : "file:/d",
  "files" : [ {
    "s" : "file:/a\\uD83D\\uDE00",
    "d" : "file:/é",
    "z" : 0
  }, {
    "s" : "\\"},{\\"s\\":\\"\\\\",
    "d" : ",\\"d\\":\\"",
    "z" : 9223372036854775807,
    "e" : "e\\n"
  } ],
  "directories" : [ {
    "d" : "file:/x",
    "t" : 0,
    "l" : 0
  } ],
  "iostatistics" : {
    "counters" : { },
    "gauges" : { },
    "minimums" : { },
    "maximums" : { },
    "meanstatistics" : {
      "m" : {
        "samples" : 1,
        "sum" : 2
      }
    }
  }
}"""
    )


tricky = st.text(st.sampled_from('"\\{}[],:sdze \n\x01😀é'), min_size=1, max_size=12)
any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | tricky


class _Files(msgspec.Struct):
    files: list[FileEntry]


@given(st.lists(st.builds(FileEntry, any_text, any_text, st.integers(0, 2**63 - 1), st.none() | any_text)))
def test_any_text_survives_the_layout(files: list[FileEntry]) -> None:
    data = encode_task_manifest(manifest(*files))
    assert decode(data, _Files, source="", what="test").files == files
    # The layout of each entry does not depend on the fast way of making it: the standard library agrees.
    assert json.loads(data)["files"] == msgspec.to_builtins(files)
    for line in re.findall(rb"(?<=\n)    .*", data):
        assert re.match(rb'    "[sdze]" : (?:\d+|".*"),?\Z', line)


def test_many_entries_are_laid_out_as_few_are() -> None:
    files = [FileEntry(f"file:/s/{n}", f"file:/d/{n}", n, "e" if n % 3 else None) for n in range(5000)]
    whole = encode_task_manifest(manifest(*files))
    singles = [encode_task_manifest(manifest(entry)) for entry in files]
    start = singles[0].index(b'"files" : [ ') + len(b'"files" : [ ')
    end = singles[0].index(b" ]") - len(singles[0])
    expected = singles[0][:start] + b", ".join(single[start:end] for single in singles) + singles[0][end:]
    assert whole == expected
    assert decode_task_manifest(whole, source=SOURCE).files == files


# -- containment ------------------------------------------------------------------------------------------------------

BASE = StorePath.of("/dest")
ROOT = BASE / "_temporary/j/00/tasks"


def relative(value: TaskManifest) -> Any:
    return relative_entries(value, destination=BASE, source_root=ROOT, source=SOURCE)


def entry(name: str = "a") -> FileEntry:
    return FileEntry((ROOT / "t" / name).uri, (BASE / name).uri, 1)


@pytest.mark.parametrize("prefix", ["file:", "file://", ""])
@pytest.mark.parametrize("name", ["a", "a b/c", "x=%41/é", "😀", "_SUCCESS.crc", "a/_SUCCESS", "_hidden/.b", "a..b/c"])
def test_entries_inside(prefix: str, name: str) -> None:
    def spelled(uri: str) -> str:
        return prefix + uri.removeprefix("file:")

    inside = FileEntry(spelled((ROOT / "t" / name).uri), spelled((BASE / name).uri), 7, "")
    value = manifest(inside, directories=[DirectoryEntry(spelled((BASE / name).uri) + "/", 3, 1)])
    assert relative(value) == ([(f"t/{name}", name, 7, None)], [name])


@pytest.mark.parametrize(
    "uri",
    [
        "file:/dest", "file:/dest/", "file:/", "file:/destination/a", "file:/other/a", "file:/dest/../a",
        "file:/dest/a/../../b", "file:/dest/a/%2E%2E/b", "file:/dest/..%2Fb", "file:/dest/_SUCCESS",
        "file:/dest/./_SUCCESS", "file:/dest/%5FSUCCESS", "file:/dest/_SUCCESS/a", "file:/dest/_temporary",
        "file:/dest/_temporary/j/x", "file:/dest/_Temporary/x", "file:/dest/__magic/x", "file:/dest/__magic_job-1/x",
        "file:/dest/a=1/_temporary/J2/decision", "file:/dest/a=1/__magic_job-1/x", "file://host/dest/a",
        "hdfs://nn/dest/a", "memory:/dest/a", "//dest/a", "dest/a", "a", "", "file:/dest/a b", "file:/dest/%",
        "file:/dest/a?b", "file:/dest/a%00", "file:/dest/a\n",
    ],
)  # fmt: skip
def test_what_lies_elsewhere_is_refused(uri: str) -> None:
    for count in (0, 3):
        # Alone, and behind entries that the fast way would take.
        files = [entry(f"f{n}") for n in range(count)]
        with pytest.raises(RecordError) as raised:
            relative(manifest(*files, FileEntry((ROOT / "t/x").uri, uri, 1)))
        assert (raised.value.field, raised.value.path) == (f"files[{count}].d", SOURCE)
        made = [DirectoryEntry((BASE / f"f{n}").uri) for n in range(count)]
        with pytest.raises(RecordError) as raised:
            relative(manifest(directories=[*made, DirectoryEntry(uri)]))
        assert raised.value.field == f"directories[{count}].d"


def test_names_that_begin_with_an_underscore_are_no_obstacle() -> None:
    uris = ["file:/dest/a/_delta_log/0", "file:/elsewhere/_w/x", "file:/dest/_q=1/x"]
    value = manifest(*(FileEntry((ROOT / f"t/{n}").uri, uri, 1) for n, uri in enumerate(uris)))
    files, _made = relative_entries(
        value, destination=BASE, source_root=ROOT, source=SOURCE, roots=frozenset({"/elsewhere"})
    )
    assert [name for _source, name, _size, _identity in files] == ["a/_delta_log/0", "/elsewhere/_w/x", "_q=1/x"]


@pytest.mark.parametrize(
    "uri", [ROOT.uri, ROOT.parent.uri, f"{ROOT.uri}2/a", f"{ROOT.uri}/../a", "file:/dest/a", "hdfs://nn/a", "a", ""]
)
def test_sources_elsewhere_are_refused(uri: str) -> None:
    with pytest.raises(RecordError) as raised:
        relative(manifest(entry(), FileEntry(uri, (BASE / "b").uri, 1)))
    assert raised.value.field == "files[1].s"


def test_one_source_or_one_destination_twice_is_refused() -> None:
    for second, field in (
        (FileEntry((ROOT / "t/a").uri, (BASE / "b").uri, 1), "files[1].s"),
        (FileEntry((ROOT / "u/a").uri.replace("file:", "file://"), (BASE / "a").uri, 1), "files[1].d"),
    ):
        with pytest.raises(RecordError) as raised:
            relative(manifest(entry(), second))
        assert raised.value.field == field


def test_the_root_of_a_store_can_be_the_destination() -> None:
    base = StorePath.of("gs://bucket")
    root = base / "_temporary/j"

    def below(*uris: str) -> Any:
        files = [FileEntry(f"gs://bucket/_temporary/j/{n}", uri, n) for n, uri in enumerate(uris)]
        return relative_entries(manifest(*files), destination=base, source_root=root, source=SOURCE)

    assert below("gs://bucket/a", "gs://bucket/b/c")[0] == [("0", "a", 0, None), ("1", "b/c", 1, None)]
    for uri in ("gs://bucket", "gs://bucket/", "gs://bucket2/a", "/a"):
        with pytest.raises(RecordError) as raised:
            below("gs://bucket/a", uri)
        assert raised.value.field == "files[1].d"


def test_an_index_beyond_the_first_chunk_is_right() -> None:
    files = [entry(f"d/f{n}") for n in range(5000)]
    files[4321] = FileEntry(files[4321].s, "file:/dest/../x", 1)
    with pytest.raises(RecordError) as raised:
        relative(manifest(*files))
    assert raised.value.field == "files[4321].d"


segments = st.text(st.sampled_from("ab.%2Ee/_é? \n:#") | st.characters(exclude_categories=["Cs"]), max_size=8)
spellings = st.tuples(
    st.sampled_from(["file:/d/", "file:///d/", "/d/", "FILE:/d/", "gs://b/", "gs://b", "//", "file:", ""]),
    st.lists(segments | st.sampled_from(["..", ".", "", "x", "%2e%2E", "a%2Fb", "%20"]), max_size=4).map("/".join),
).map("".join)


@given(st.lists(spellings, min_size=1, max_size=6))
def test_reading_together_is_reading_each(uris: list[str]) -> None:
    expected: list[str] = []
    failed = None
    for index, uri in enumerate(uris):
        try:
            assert not set("?#") & set(uri)
            expected.append(str(StorePath.from_uri(uri)))
        except (AssertionError, ValueError):
            failed = index
            break
    if failed is None:
        assert list(read_uris(uris, field="u[%d]", what="test", source="")) == expected
    else:
        with pytest.raises(RecordError) as raised:
            read_uris(uris, field="u[%d]", what="test", source="")
        assert raised.value.field == f"u[{failed}]"

"""Paths: Hadoop's textual URIs (every row of the tables that Java printed), what users type, Hive partition names."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from committer.errors import InvalidPathError
from committer.file_names import check_file_name, escape_path_name, partition_directory, unescape_path_name
from committer.paths import StorePath, decode_uri_path, encode_uri_path

TABLES = Path(__file__).parent / "fixtures" / "java-manifest-committer" / "paths"


def table(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((TABLES / name).read_text(encoding="utf-8"))
    return rows


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..")
)
relative_names = st.lists(names, min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize("row", table("path-encoding-table.json"), ids=lambda row: row["codepoint"])
def test_every_character_is_encoded_and_decoded_as_java_does(row: dict[str, Any]) -> None:
    path = f"/d/p{chr(int(row['codepoint'].replace('U+', ''), 16))}q"
    stored = row["marshalled"]
    assert StorePath("file", "", path).uri == stored
    assert encode_uri_path(path) == stored.removeprefix("file:")
    assert decode_uri_path(stored.removeprefix("file:")) == path
    assert StorePath.from_uri(stored) == StorePath("file", "", path)
    assert StorePath.of(f"file:{path}").uri == stored
    assert (StorePath.of("file:/d") / path.removeprefix("/d/")).uri == stored


@pytest.mark.parametrize("row", table("path-unmarshall-table.json"), ids=lambda row: row["stored"])
def test_stored_uris_are_read_as_java_does(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(InvalidPathError):
            StorePath.from_uri(row["stored"])
        return
    path = StorePath.from_uri(row["stored"])
    # A StorePath has no slash at its end; Java keeps one that was stored.
    assert path.path == (row["path"].rstrip("/") or "/")
    assert StorePath.from_uri(path.uri) == path
    if not set("?#") & set(row["stored"]):
        assert StorePath.from_uri(row["remarshalled"]) == path


@pytest.mark.parametrize("row", table("path-whole-uri-table.json"), ids=lambda row: row["input_to_Path"])
def test_whole_uris_are_written_as_java_does(row: dict[str, Any]) -> None:
    path = StorePath.of(row["input_to_Path"])
    # Java keeps `file:///` where the user typed it and leaves a missing scheme out; we have one spelling for each.
    expected = row["marshalled"].replace("file:///", "file:/")
    assert path.uri == (expected if ":" in expected else f"file:{expected}")
    assert StorePath.from_uri(row["marshalled"]) == path


@given(relative_names, st.sampled_from(["file:/", "file:/a b", "abfs://c@acct.dfs.core.windows.net/x", "gs://b"]))
@example("%41/a%2Fb/ %", "file:/")
@example("e\u0301/\xe9", "gs://b")
def test_uri_round_trip(name: str, base: str) -> None:
    path = StorePath.of(base) / name
    assert StorePath.from_uri(path.uri) == path
    assert path.relative_to(StorePath.of(base)) == name
    assert path.is_under(StorePath.of(base))
    assert StorePath.of(str(path)) == path


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escapes_round_trip(text: str) -> None:
    encoded = encode_uri_path(text)
    assert decode_uri_path(encoded) == text
    assert encode_uri_path(decode_uri_path(encoded)) == encoded


@given(st.text())
def test_reading_any_text_gives_a_normal_path_or_the_one_error(text: str) -> None:
    for read in (StorePath.from_uri, StorePath.of):
        try:
            path = read(text)
        except InvalidPathError:
            continue
        assert path.path == "/" or not {"", ".", ".."} & set(path.path[1:].split("/"))
        assert "\0" not in path.path


@pytest.mark.parametrize(
    "stored",
    [
        "", "x/y", "file:x", "file:", "//host/x", "gs:/../x", "file:/a/../../x", "file:/a/%2e%2e/x", "file:/a/%2E/x",
        "file:/a/..%2Fb", "file:/a%00b", "file:/a\0b", "file:/a/../b\0/..", "file:/%FF", "file:/%ED%A0%80",
        "file:/a?b c", "file:/a#b#c", "file:/a?%zz", "file:/a\xa0b", "file:/a[1]", "1file:/a", "fi le:/a",
        "gs://a b/c", "gs://a%20b/c", "gs://bucket:port/c",
    ],
)  # fmt: skip
def test_stored_uris_that_are_refused(stored: str) -> None:
    with pytest.raises(InvalidPathError):
        StorePath.from_uri(stored)


def test_from_uri_normalises_what_escapes_hid() -> None:
    assert StorePath.from_uri("file:/a%2F%2Fb%2F").path == "/a/b"
    assert StorePath.from_uri("file:/a/..%2Eb").path == "/a/...b"
    assert StorePath.from_uri("gs://b") == StorePath.from_uri("gs://b/") == StorePath("gs", "b", "/")
    assert StorePath.from_uri("/x%20y") == StorePath("file", "", "/x y")
    assert StorePath.from_uri("FILE:/x").scheme == "file"
    assert StorePath.from_uri("file:/a:b/c:d").path == "/a:b/c:d"


def test_of_reads_local_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.fspath(tmp_path)
    assert StorePath.of("x/../y") == StorePath("file", "", f"{here}/y")
    assert StorePath.of(Path("x y")).path == f"{here}/x y"
    monkeypatch.setenv("HOME", "/home/me")
    assert StorePath.of("~/x").path == StorePath.of(Path("~/x")).path == "/home/me/x"
    assert StorePath.of("./~/x").path == f"{here}/~/x"
    assert StorePath.of("./a:b").path == f"{here}/a:b"
    assert StorePath.of(Path("a:b")).path == f"{here}/a:b"
    assert StorePath.of("/a%20b").path == "/a%20b"
    assert StorePath.of("/../x").path == StorePath.of("file:/../x").path == "/x"
    assert StorePath.of("/a/b/").path == "/a/b"
    assert StorePath.of(".").path == here
    path = StorePath.of("/x")
    assert StorePath.of(path) is path


def test_of_needs_a_current_directory_only_for_relative_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert StorePath.of("/x").path == "/x"
    with pytest.raises(InvalidPathError, match="current directory"):
        StorePath.of("x")


@pytest.mark.parametrize(
    "value", ["", "a:b", "file:x", "abfs:x/y", "//host/x", "gs://b/../../x", "file:", "a b:/x", "/a\0b", "gs://b\0/x"]
)
def test_of_refuses(value: str) -> None:
    with pytest.raises(InvalidPathError):
        StorePath.of(value)


def test_of_refuses_a_uri_that_went_through_pathlib() -> None:
    with pytest.raises(InvalidPathError, match="as a string"):
        StorePath.of(Path("abfs://c@a/x"))


@pytest.mark.parametrize("text", ["s3a://KEY:SEKRET@bucket/x", "s3a://KEY:SEK/RET@bucket/x", "hdfs://u:SEKRET@h:80"])
@pytest.mark.parametrize("read", [StorePath.of, StorePath.from_uri])
def test_secrets_in_an_authority_are_refused_and_not_repeated(read: Any, text: str) -> None:
    with pytest.raises(InvalidPathError) as raised:
        read(text)
    assert "SEK" not in str(raised.value) + repr(raised.value)


def test_authorities() -> None:
    for authority in ("c@acct.dfs.core.windows.net", "nn:8020", "bucket_1", "[::1]:9000", "user@nn:8020"):
        path = StorePath.of(f"hdfs://{authority}/x")
        assert (path.authority, path.path) == (authority, "/x")
        assert path.uri == f"hdfs://{authority}/x"


@pytest.mark.parametrize("name", ["", ".", "..", "a/..", "../a", "a//b", "/a", "a/", "a/./b", "a\0b", "./a"])
def test_relative_names_that_cannot_be_joined(name: str) -> None:
    with pytest.raises(InvalidPathError):
        StorePath.of("/d") / name
    with pytest.raises(InvalidPathError):
        check_file_name(name)


@pytest.mark.parametrize("name", ["a", ".a", "..a", "a..", "a/.b", "a/..b", "a/...", " ", "a:b", "\\", "%2e%2e"])
def test_relative_names_that_can(name: str) -> None:
    assert (StorePath.of("/d") / name).path == f"/d/{name}"
    assert check_file_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "_SUCCESS",
            "_SUCCESS/x",
            "_temporary",
            "_temporary/x",
            "_TEMPORARY/x",
            "__magic",
            "__magic_job-1/x",
            "__magic_job-",
        ),
        # Another job may run into a directory below.
        *("a/_temporary", "a=1/_temporary/J2/decision", "a/b/_TEMPORARY/x", "a/__magic/x", "a=1/b=2/__magic_job-J2/x"),
    ],
)
def test_names_the_protocols_own_are_refused(name: str) -> None:
    with pytest.raises(InvalidPathError, match="own"):
        check_file_name(name)


def test_names_that_only_look_reserved() -> None:
    for name in (
        "_SUCCESS.crc", "a/_SUCCESS", "a/_temporary2/x", "a/_temporary=1/x", "_temporary-x", "_temporary_id=1/x",
        "_temporary=1/x", "__magic=1/x", "__magic_job/x", "__magician=1/x", "_SUCCESS=1/x", "_metadata", "_magic",
        "a/__magics",
    ):  # fmt: skip
        assert check_file_name(name) == name


def test_names_that_are_not_unicode() -> None:
    name = os.fsdecode(b"\xff")
    with pytest.raises(InvalidPathError, match="Unicode"):
        check_file_name(name)
    listed = StorePath.of("/d") / name
    with pytest.raises(InvalidPathError, match="Unicode"):
        _ = listed.uri


def test_parts() -> None:
    root, path = StorePath.of("gs://b"), StorePath.of("gs://b/x/y")
    assert (path.name, root.name) == ("y", "")
    assert path.parent == StorePath.of("gs://b/x")
    assert path.parent.parent == root.parent == root
    assert (root / "x").path == "/x"
    assert (root / "x").relative_to(root) == "x"
    assert not path.is_under(path)
    assert not root.is_under(root)
    assert not StorePath.of("gs://b/xy").is_under(StorePath.of("gs://b/x"))
    for other in (path, StorePath.of("gs://b/x/yz"), StorePath.of("gs://c"), StorePath.of("s3://b"), path / "z"):
        with pytest.raises(InvalidPathError):
            path.relative_to(other)


def test_values() -> None:
    path = StorePath.of("abfs://c@acct/a b")
    assert (str(path), repr(path)) == ("abfs://c@acct/a b", "StorePath('abfs://c@acct/a b')")
    assert path.uri == "abfs://c@acct/a%20b"
    assert str(StorePath.of("/a b")) == "file:/a b"
    assert len({path, StorePath.of("abfs://c@acct/a b/"), StorePath.from_uri(path.uri)}) == 1
    assert StorePath.of("file:///x") == StorePath.of("file:/x") == StorePath.of("/x")
    assert min(StorePath.of("/b"), StorePath.of("/a")).name == "a"
    assert pickle.loads(pickle.dumps(path)) == copy.deepcopy(path) == path
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(path), type=StorePath) == path
    with pytest.raises(AttributeError):
        path.path = "/x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        path.other = 1  # type: ignore[attr-defined]


def test_hive_escapes_exactly_46_characters() -> None:
    escaped = [chr(code) for code in range(0x250) if escape_path_name(chr(code)) != chr(code)]
    assert len(escaped) == 46
    assert "".join(escaped[31:]) == "\"#%'*/:=?[\\]^{\x7f"
    assert escaped[:31] == [chr(code) for code in range(1, 32)]


@pytest.mark.parametrize(
    ("partition", "directory"),
    [
        ([("a b=c/d", "1")], "a b%3Dc%2Fd=1"),
        ([("p", "2024-02-29 13:00:00.123")], "p=2024-02-29 13%3A00%3A00.123"),
        ([("t", "12:30:00")], "t=12%3A30%3A00"),
        ([("i", "INTERVAL '1 02:03:04' DAY TO SECOND")], "i=INTERVAL %271 02%3A03%3A04%27 DAY TO SECOND"),
        ([("a", "1"), ("b", None)], "a=1/b=__HIVE_DEFAULT_PARTITION__"),
        ([("a", "")], "a=__HIVE_DEFAULT_PARTITION__"),
        ([("a", "..")], "a=.."),
        ([("a", "São <Paulo>|&+~`.}")], "a=São <Paulo>|&+~`.}"),
        ([("a", "%:\t\x01")], "a=%25%3A%09%01"),
    ],
)
def test_partition_directories(partition: list[tuple[str, str | None]], directory: str) -> None:
    assert partition_directory(partition) == directory
    assert check_file_name(directory) == directory


def test_a_partition_column_needs_a_name() -> None:
    with pytest.raises(InvalidPathError):
        partition_directory([("", "1")])


@given(st.text())
def test_hive_names_round_trip(text: str) -> None:
    assert unescape_path_name(escape_path_name(text)) == text


def test_hive_unescaping_leaves_what_is_no_escape() -> None:
    assert unescape_path_name("%zz%4%") == "%zz%4%"
    assert unescape_path_name("%3a%E9") == ":\xe9"

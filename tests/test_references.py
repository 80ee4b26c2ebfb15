"""References, `env:NAME` and `file:PATH`: one rule for both, and one reader."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer.errors import ConfigurationError
from committer.options.references import Secret, is_in_file, is_reference, resolved

Put = Callable[[str], str]


@pytest.fixture(params=["env", "file"])
def put(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a text where a reference finds it; returns the reference."""

    def by_variable(text: str) -> str:
        monkeypatch.setenv("COMMITTER_TEST_VALUE", text)
        return "env:COMMITTER_TEST_VALUE"

    def by_file(text: str) -> str:
        (tmp_path / "value").write_text(text, "utf-8")
        return f"file:{tmp_path}/value"

    return by_variable if request.param == "env" else by_file


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n", "  s3cret\t\n\n"])
def test_space_around_a_value_is_no_part_of_it(put: Put, text: str) -> None:
    reference = put(text)
    assert resolved(reference, "account_key") == "s3cret"
    assert Secret(reference, "account_key").reveal() == "s3cret"


def test_space_inside_a_value_stays(put: Put) -> None:
    assert resolved(put(" two words\nand a line \n"), "account_key") == "two words\nand a line"


@pytest.mark.parametrize("text", ["", "\n", "  "])
def test_an_empty_value_is_none(put: Put, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"account_key refers to .* which is empty") as caught:
        resolved(put(text), "account_key")
    assert "where this process runs" in caught.value.next_step


def test_what_is_found_is_no_reference_again(put: Put) -> None:
    assert resolved(put("env:HOME"), "account_key") == "env:HOME"


@pytest.mark.parametrize("value", ["plain", " plain\n", "", "env:", "file:", "ENV:HOME", "https://h:1"])
def test_other_values_are_themselves(value: str) -> None:
    assert not is_reference(value)
    assert not is_in_file(value)
    assert resolved(value, "endpoint") == value


def test_only_a_file_blocks() -> None:
    assert is_in_file("file:/x")
    assert not is_in_file("env:X")
    assert not is_in_file(object())


def test_what_cannot_be_read_is_said_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("canary" * 20_000)
    (tmp_path / "bytes").write_bytes(b"canary \xff\xfe")
    for name, problem in (
        ("long", "is longer than 65536 characters"),
        ("bytes", "cannot be read: UnicodeDecodeError"),
        ("missing", "cannot be read: FileNotFoundError"),
    ):
        with pytest.raises(ConfigurationError, match=problem) as caught:
            resolved(f"file:{tmp_path}/{name}", "account_key")
        assert "canary" not in str(caught.value)


def test_there_is_one_reader() -> None:
    """No other module of the library knows what a reference begins with."""
    package = Path(committer.__file__).parent
    readers = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and node.value == "env:":
                readers.add(file.relative_to(package).as_posix())
    assert readers == {"options/references.py"}


def test_listed_directory_may_be_reached_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes names secrets below /var/run, on most systems a link to /run, and each file is a link to another."""
    (tmp_path / "run/secrets/..data").mkdir(parents=True)
    (tmp_path / "run/secrets/..data/key").write_text("s3cret")
    (tmp_path / "run/secrets/key").symlink_to("..data/key")
    (tmp_path / "var").symlink_to(tmp_path / "run")
    monkeypatch.setenv("COMMITTER_REFERENCES", f"file:{tmp_path}/var/secrets/*")
    assert resolved(f"file:{tmp_path}/var/secrets/key", "account_key") == "s3cret"
    (tmp_path / "run/other").write_text("s3cret")
    with pytest.raises(ConfigurationError, match="does not list"):
        resolved(f"file:{tmp_path}/var/secrets/../other", "account_key")


@pytest.mark.parametrize(
    ("reference", "listed"),
    [
        ("env:LAKE_KEY", True),
        ("env:OTHER", False),
        ("env:COMMITTER_REFERENCES", False),
        ("file:{0}/secrets/key", True),
        ("file:{0}/other", False),
        ("file:{0}/secrets/../other", False),
        ("file:{0}/secrets/link", False),
    ],
)
def test_a_process_that_lists_its_references_resolves_no_other(
    reference: str, listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may give storage options, in SQL say, need not be who may read all that the driver can."""
    (tmp_path / "secrets").mkdir()
    for name in ("secrets/key", "other"):
        (tmp_path / name).write_text("s3cret")
    (tmp_path / "secrets/link").symlink_to(tmp_path / "other")
    for name in ("LAKE_KEY", "OTHER"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("COMMITTER_REFERENCES", f"env:LAKE_*, file:{tmp_path.resolve()}/secrets/*")
    reference = reference.format(tmp_path)
    if listed:
        assert resolved(reference, "account_key") == "s3cret"
    else:
        with pytest.raises(ConfigurationError, match="COMMITTER_REFERENCES of this process does not list"):
            resolved(reference, "account_key")

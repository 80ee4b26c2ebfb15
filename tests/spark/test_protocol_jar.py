"""The jar of the commit protocol: where it comes from, and what is said where there is none."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

import committer.spark
from committer.errors import UnsupportedError
from committer.spark.jvm import building

pytestmark = pytest.mark.java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lake-committer"


def test_the_jar_is_built_once_and_again_for_other_sources(cache: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    jar = Path(committer.spark.jar_path())
    assert jar.parent == cache
    assert building.release_of(jar) == building.release() in jar.name
    assert [path.name for path in cache.iterdir()] == [jar.name]
    with zipfile.ZipFile(jar) as archive:
        assert "io/github/lakecommitter/spark/CommitProtocol.class" in archive.namelist()
    before = jar.read_bytes()
    jar.write_bytes(b"cut short by a full disk")
    assert committer.spark.jar_path() == str(jar)
    # The same bytes: what is in the jar depends on sources and compiler alone.
    assert jar.read_bytes() == before
    stood = jar.stat().st_ino
    committer.spark.jar_path()
    assert jar.stat().st_ino == stood


def test_no_jdk(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="there is no Java compiler") as caught:
        committer.spark.jar_path()
    assert "install a JDK of Java 17" in caught.value.next_step
    assert not cache.exists()


def test_no_spark(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match="Spark's jars were not found"):
        committer.spark.jar_path()


def test_a_compiler_that_fails_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    javac = tmp_path / "bin" / "javac"
    javac.parent.mkdir()
    javac.write_text("#!/bin/sh\necho error: release version 17 not supported >&2\nexit 2\n")
    javac.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match="release version 17 not supported"):
        committer.spark.jar_path()
    assert list(cache.iterdir()) == []

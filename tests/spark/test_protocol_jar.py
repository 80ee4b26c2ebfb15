"""The jar of the commit protocol: where it comes from, and what is said where there is none."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pyspark
import pytest

import committer.spark
from committer.errors import UnsupportedError
from committer.spark import job_side
from committer.spark.job_side import refuse_other_spark
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
    assert building.compiled_for(jar) == building.spark_version(building.spark_jars()) in jar.name
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


@pytest.mark.parametrize(
    ("compiled", "running", "serves"),
    [
        ("2.13-4.3.0", "2.13-4.3.0", True),
        ("2.13-4.3.0", "4.3.1", True),
        ("2.13-4.3.0", "4.3.0-amzn-1", True),
        ("2.13-4.3.0", "4.1.0", False),
        ("2.13-4.3.0", "2.12-4.3.0", False),
        ("2.13-4.3.0", "5.3.0", False),
        ("", "4.3.0", False),
    ],
)
def test_a_jar_serves_one_feature_release_of_spark(compiled: str, running: str, serves: bool) -> None:
    assert building.serves(compiled, running) == serves


@pytest.mark.parametrize("built_for", ["2.13-4.1.0", "2.13-{running}"])
def test_a_wheel_s_jar_is_taken_for_the_spark_that_it_was_built_for(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_for: str
) -> None:
    built_for = built_for.format(running=pyspark.__version__)
    brought = tmp_path / "committer-spark.jar"
    with zipfile.ZipFile(brought, "w") as archive:
        archive.writestr("io/github/lakecommitter/spark/release", building.release())
        archive.writestr("io/github/lakecommitter/spark/spark", built_for)
    monkeypatch.setattr(building, "PACKAGED", brought)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    if built_for != "2.13-4.1.0":
        assert committer.spark.jar_path() == str(brought)
        return
    with pytest.raises(UnsupportedError, match=r"for Spark 2\.13-\d.*, only for 2\.13-4\.1\.0, and cannot be built"):
        committer.spark.jar_path()


def test_a_jar_for_another_spark_is_refused() -> None:
    refuse_other_spark("2.13-4.3.0", "4.3.0")
    with pytest.raises(UnsupportedError, match=r"was compiled for Spark 2\.13-4\.1\.0, and this is Spark 4\.3\.0"):
        refuse_other_spark("2.13-4.1.0", "4.3.0")
    asked = {"job_id": "j", "destination": "file:/t", "dynamic": False, "superseded": [], "options": {}}
    told = job_side.answered(
        "setup",
        json.dumps(asked | {"release": building.release(), "compiled_for": "2.13-4.1.0", "spark": "4.3.0"}),
    )
    assert "was compiled for Spark 2.13-4.1.0" in json.loads(told)["error"]

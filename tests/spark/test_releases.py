"""Each release of Spark that docs/spark.md names: its table, row by row, in an environment with that PySpark alone.

The environments stay in the user's cache directory. CI runs the oldest release, and of the table what it is most used for;
`-m slow` runs all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from committer.spark.jvm import building
from committer.spark.protocol_jar import NEWEST, OLDEST
from tests.fetched import FETCHED
from tests.interop.jvm import NoJavaError
from tests.interop.maven import dependency, fetched_jars

from . import releases
from .conftest import wrapper

ROOT = Path(__file__).parents[2]
# Beside PySpark.
NEEDS = ["aiohttp", "aiolimiter", "anyio", "msgspec", "pyarrow", "setuptools"]
PANDAS = {"4.3": "pandas"}
OLDER_PANDAS = "pandas<3"
# PySpark 3.5 has no server of Connect, and its extra wants a NumPy that pyarrow does not work with.
CONNECT_SERVER = {"3.5": ("org.apache.spark:spark-connect_2.12", "3.5.7")}
CONNECT_CLIENT = ["googleapis-common-protos", "grpcio", "grpcio-status"]
IN_CI = ("own writers", '`format("committer")`', "`foreach_partition`")
_TABLE = re.compile(r"<!-- releases -->\n(.*?)<!-- end releases -->", re.DOTALL)


def table() -> dict[str, dict[str, str]]:
    """The page's table: by release, what it says of each feature."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    found = _TABLE.search(page)
    assert found is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].strip().splitlines()]
    head, _rule, *body = rows
    return {name: {row[0]: row[column] for row in body} for column, name in enumerate(head) if column}


RELEASES = list(table())


def python_of(release: str) -> Path:
    """Makes the environment of a release once; skips if it cannot be had."""
    place = FETCHED / f"spark-{release}-connect-python{sys.version_info[0]}.{sys.version_info[1]}"
    if (place / "made").exists():
        return place / "bin" / "python"
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip(f"there is no uv to make {place} with")
    if sys.version_info >= (3, 13) and release == "3.5":
        pytest.skip("PySpark 3.5 does not support this Python")
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    extra, client = ("", CONNECT_CLIENT) if release in CONNECT_SERVER else ("[connect]", [])
    packages = [f"pyspark{extra}=={release}.*", PANDAS.get(release, OLDER_PANDAS), *NEEDS, *client]
    command = [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    if done.returncode != 0:
        pytest.skip(f"PySpark {release} cannot be installed: {done.stderr.strip()[-300:]}")
    (place / "made").touch()
    return place / "bin" / "python"


def connect_jar(release: str) -> str:
    """Fetches the server of Connect for a PySpark without one; skips if Maven cannot be reached."""
    if release not in CONNECT_SERVER:
        return ""
    name, version = CONNECT_SERVER[release]
    try:
        (jar,) = fetched_jars(f"spark-connect-{version}", [dependency(name, version, without=["*:*"])])
    except NoJavaError as error:
        pytest.skip(str(error))
    return str(jar)


def told(python: Path, out: Path, *arguments: str, connect_jar: str = "") -> Mapping[str, str]:
    """Runs releases.py on this PySpark, which commits by this package's sources."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "CONNECT_JAR": connect_jar}
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS"):
        environment.pop(name, None)
    command = [str(python), str(Path(releases.__file__)), str(out), *arguments]
    done = subprocess.run(command, env=environment, cwd=out, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def compare(page: Mapping[str, str], answer: Mapping[str, str]) -> None:
    for feature, error in answer.items():
        if page[feature] == "yes":
            assert error == "", f"{feature}: {error}"
        else:
            # The error names the release that can, and what to use on this one.
            assert re.search(r"need(s)? (Py)?Spark 4\.\d or later", error), f"{feature}: {error}"
            assert "next step: " in error


pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("releases"),
    pytest.mark.allow_blocking("it runs Spark in other processes"),
]


def test_the_table_has_the_releases_that_the_jar_is_known_to_serve() -> None:
    assert RELEASES[0] == ".".join(map(str, OLDEST))
    assert RELEASES[-1] == ".".join(map(str, NEWEST))
    for features in table().values():
        assert set(features) == {*releases.CLASSIC, *releases.CONNECT}
        assert set(features.values()) <= {"yes", "no"}


def test_the_oldest_release(tmp_path: Path) -> None:
    features = table()[RELEASES[0]]
    answer = told(python_of(RELEASES[0]), tmp_path, *IN_CI)
    assert set(answer) == set(IN_CI)
    compare(features, answer)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_row_of_the_table(tmp_path: Path, release: str) -> None:
    python = python_of(release)
    (tmp_path / "connect").mkdir()
    answer = {**told(python, tmp_path)}
    answer |= told(python, tmp_path / "connect", "--connect", connect_jar=connect_jar(release))
    page = table()[release]
    assert set(answer) == set(page)
    compare(page, answer)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_the_signatures_are_those_of_the_release(tmp_path: Path, release: str) -> None:
    """A jar that is compiled against Spark's own jars has the same bytes, so this one can be linked with them."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("there is no JDK")
    (jars,) = python_of(release).parents[1].glob("lib/python*/site-packages/pyspark/jars")
    building.write_api(tmp_path / "api")
    # Bytecode of the oldest Java that reads Spark's own class files.
    building.compile_sources(javac, tmp_path / "ours", ["-implicit:none", "-cp", str(tmp_path / "api")], "17")
    building.compile_sources(javac, tmp_path / "theirs", ["-cp", f"{jars}/*"], "17")
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.class")} for name in ("ours", "theirs")
    )
    assert ours == theirs


# --- What is installed ---------------------------------------------------------------------------------------------


def failing_compiler(directory: Path) -> dict[str, str]:
    """An environment in which javac does not work."""
    javac = directory / "jdk" / "bin" / "javac"
    javac.parent.mkdir(parents=True)
    wrapper(javac, "echo no compiler >&2\nexit 2")
    return {**os.environ, "JAVA_HOME": str(directory / "jdk")}


def uv_or_skip() -> str:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("there is no uv")
    return uv


@pytest.mark.slow
def test_a_wheel_without_a_jdk_is_refused_or_asked_for(tmp_path: Path) -> None:
    command = [uv_or_skip(), "build", "--wheel", "--out-dir", str(tmp_path / "dist")]
    environment = failing_compiler(tmp_path)
    refused = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "cannot be built" in refused.stdout + refused.stderr
    assert "LAKE_COMMITTER_WITHOUT_JARS=1" in refused.stdout + refused.stderr
    assert list(tmp_path.glob("dist/*.whl")) == []
    subprocess.run(command, cwd=ROOT, env={**environment, "LAKE_COMMITTER_WITHOUT_JARS": "1"}, check=True)
    (wheel,) = tmp_path.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".jar")]


SPARKS_WRITE = """
import pathlib, sys
from pyspark.sql import SparkSession
import committer.spark

jar = pathlib.Path(committer.spark.jar_path())
assert jar.parents[3] == pathlib.Path(committer.__file__).parents[1] and "site-packages" in str(jar), jar
builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
spark = committer.spark.configure(builder.config("spark.ui.enabled", "false")).getOrCreate()
spark.range(9).selectExpr("id", "id % 3 p").write.partitionBy("p").parquet(sys.argv[1])
assert spark.read.parquet(sys.argv[1]).count() == 9
print(committer.spark.last_report().success)
"""


@pytest.mark.slow
def test_wheel_and_sdist_in_fresh_environments(tmp_path: Path) -> None:
    uv, java = uv_or_skip(), shutil.which("java")
    if shutil.which("javac") is None or java is None:
        pytest.skip("there is no JDK")
    subprocess.run([str(ROOT / "scripts" / "build_wheel.sh"), str(tmp_path / "dist")], check=True)
    snippet = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    # No compiler from here on: neither for the sdist's wheel, nor for the write.
    environment = failing_compiler(tmp_path)
    (tmp_path / "jdk" / "bin" / "java").symlink_to(os.path.realpath(java))
    for distribution in sorted((tmp_path / "dist").glob("lake_committer-*")):
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            here = Path(place)
            python = here / "env" / "bin" / "python"
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(here / "env")], check=True)
            command = [uv, "pip", "install", "--quiet", "--python", str(python), f"{distribution}[spark]"]
            subprocess.run(command, env=environment, check=True)
            run = {**environment, "PYSPARK_PYTHON": str(python), "PATH": f"{here}/env/bin:{os.environ['PATH']}"}
            first = snippet.replace("/data/flights", str(here / "flights"))
            for program, said in ((first, "1 files, 6 bytes"), (SPARKS_WRITE, "True")):
                done = subprocess.run(
                    [str(python), "-I", "-c", program, str(here / "out")],
                    env=run, cwd=here, capture_output=True, text=True, check=False,
                )  # fmt: skip
                assert done.returncode == 0, f"{distribution.name}: {done.stderr[-3000:]}"
                assert done.stdout.strip() == said

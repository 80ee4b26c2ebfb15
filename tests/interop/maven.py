"""Jars that are in no Python package: Maven fetches them once into the user's cache (tests/fetched.py), where later runs find them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fetched import FETCHED
from tests.interop.jvm import NoJavaError

# What Hadoop's store clients leave to the program that uses them, and PySpark has.
_PROVIDED = ("jackson-annotations", "jackson-core", "jackson-databind", "commons-lang3", "commons-io")
_FETCH_SECONDS = 600
_PROJECT = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>none</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{kind}{exclusions}
    </dependency>"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


def dependency(name: str, version: str, *, classifier: str = "", without: Sequence[str] = ()) -> str:
    """A dependency of a Maven project.

    Args:
        name: Group and artifact, with a colon between them.
        version: Its version.
        classifier: Which of the version's jars; "" is the plain one.
        without: What it needs and is not to be fetched, likewise; `*:*` is all of it.
    """
    group, artifact = name.split(":")
    exclusions = "".join(_EXCLUSION.format(*one.split(":")) for one in without)
    wrapped = f"<exclusions>{exclusions}</exclusions>" if exclusions else ""
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    return _DEPENDENCY.format(group=group, artifact=artifact, version=version, kind=kind, exclusions=wrapped)


def hadoop_jars(name: str, dependencies: Sequence[str]) -> list[Path]:
    """The jars of some dependencies, and what a client of Hadoop needs besides.

    Args:
        name: Of their directory in the cache: artifact and version.
        dependencies: What `dependency` made.

    Raises:
        NoJavaError: They are not there and cannot be fetched; the text says why.
    """
    pyspark = pyspark_jars()
    jars = fetched_jars(name, dependencies)
    return jars + [jar for name in _PROVIDED for jar in pyspark.glob(f"{name}-[0-9]*.jar")]


def fetched_jars(name: str, dependencies: Sequence[str]) -> list[Path]:
    """The jars of some dependencies and of what they need; as `hadoop_jars`."""
    directory = FETCHED / name
    if not directory.is_dir():
        _fetch(name, dependencies, directory)
    return sorted(directory.glob("*.jar"))


def pyspark_jars() -> Path:
    """Where PySpark's jars are.

    Raises:
        NoJavaError: It is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NoJavaError("PySpark, whose jars hold Hadoop, is not installed")
    return Path(spec.origin).parent / "jars"


def hadoop_version() -> str:
    """The version of PySpark's Hadoop.

    Raises:
        NoJavaError: It has none.
    """
    for jar in pyspark_jars().glob("hadoop-client-api-*.jar"):
        found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
        if found:
            return found[1]
    raise NoJavaError("PySpark has no hadoop-client-api jar")


def _fetch(name: str, dependencies: Sequence[str], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJavaError(f"{name} is not in {directory} and there is no Maven to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    (partial / "pom.xml").write_text(_PROJECT.format(dependencies="".join(dependencies)))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=."]
    try:
        done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NoJavaError(f"Maven did not fetch {name} within {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        raise NoJavaError(f"Maven could not fetch {name}: {(done.stdout + done.stderr).strip()[-500:]}")
    try:
        partial.rename(directory)
    except OSError:
        # Another process of the same run was faster.
        if not directory.is_dir():
            raise
        shutil.rmtree(partial)

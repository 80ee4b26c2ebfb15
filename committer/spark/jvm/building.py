"""Builds the jar of the commit protocol: `javac` against Spark's own jars, then one archive.

The build of the wheel runs this file by its path, before anything of the package can be imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PACKAGED: Final = HERE / "committer-spark.jar"
"""Where the jar lies in a wheel that was built where a JDK is."""

_PACKAGE: Final = "io/github/lakecommitter/spark"
_RELEASE: Final = f"{_PACKAGE}/release"
_SPARK: Final = f"{_PACKAGE}/spark"
_OLDEST_JAVA: Final = "17"
_TIMEOUT_S: Final = 300.0
_ZIP_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class CannotBuildError(Exception):
    """The jar cannot be built here; the text says what is missing."""


def sources() -> list[Path]:
    """The Java files, in the order of their names."""
    return sorted(HERE.glob("*.java"))


def release() -> str:
    """The digest of the sources: what a jar and a package that belong together agree on."""
    digest = hashlib.sha256()
    for source in sources():
        digest.update(f"{source.name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def release_of(jar: Path) -> str:
    """The digest of the sources that a jar was built from; empty where that cannot be read."""
    return _read(jar, _RELEASE)


def compiled_for(jar: Path) -> str:
    """The version of Spark that a jar was compiled against, as `spark_version`; empty where that cannot be read."""
    return _read(jar, _SPARK)


def _read(jar: Path, name: str) -> str:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(name).decode("ascii").strip()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return ""


def serves(compiled: str, running: str) -> bool:
    """Whether what was compiled for one version of Spark runs on another: both of one feature release, as 4.3.

    Args:
        compiled: As `spark_version`.
        running: The same, or without the version of Scala.
    """
    return _feature(compiled.partition("-")[2]) == _feature(running.removeprefix(f"{compiled.partition('-')[0]}-"))


def _feature(version: str) -> list[str]:
    return version.split(".")[:2]


def spark_jars(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of Spark's own jars: of SPARK_HOME, else of the installed PySpark.

    Raises:
        CannotBuildError: There is none.
    """
    home = environment.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    for place in (Path(home) if home else None, installed):
        if place is not None and any((place / "jars").glob("spark-core_*.jar")):
            return place / "jars"
    raise CannotBuildError("Spark's jars were not found: there is no PySpark with jars, and SPARK_HOME names none")


def spark_version(jars: Path) -> str:
    """The version of Spark whose jars lie there, as ``2.13-4.3.0``."""
    core = next(jars.glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").removesuffix(".jar")


def find_javac(environment: Mapping[str, str] = os.environ) -> str:
    """The Java compiler: of JAVA_HOME, else of the PATH.

    Raises:
        CannotBuildError: There is none.
    """
    home = environment.get("JAVA_HOME")
    own = shutil.which("javac", path=str(Path(home, "bin"))) if home else None
    found = own or shutil.which("javac", path=environment.get("PATH"))
    if found is None:
        raise CannotBuildError("there is no Java compiler: no javac in JAVA_HOME or on the PATH")
    return found


def build(jar: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Builds the jar at `jar`, by another name first: a process that reads it finds all of it, or none. Takes seconds.

    Raises:
        CannotBuildError: A JDK of Java 17 or later, or Spark, is missing; or the compiler refused.
    """
    javac, jars = find_javac(environment), spark_jars(environment)
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".committer-spark-", dir=jar.parent) as directory:
        classes = Path(directory, "classes")
        command = [javac, "--release", _OLDEST_JAVA, "-proc:none", "-encoding", "UTF-8"]
        command += ["-cp", str(jars / "*"), "-d", str(classes), *map(str, sources())]
        try:
            done = subprocess.run(  # noqa: S603 - the compiler of the user's own environment
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotBuildError(f"{javac} did not run: {error}") from error
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise CannotBuildError(f"{javac} refused the sources, against Spark {spark_version(jars)}: {said[:2000]}")
        whole = Path(directory, "whole.jar")
        _archive(classes, spark_version(jars), whole)
        whole.replace(jar)


def _archive(classes: Path, spark: str, jar: Path) -> None:
    """Packs compiled classes, the same ones always into the same bytes."""
    contents = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    contents |= {_RELEASE: release().encode("ascii"), _SPARK: spark.encode("ascii")}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ZIP_EPOCH), b"Manifest-Version: 1.0\n")
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_EPOCH), contents[name])

"""Builds the jar of the commit protocol: `javac` against Spark's own jars, then one archive.

The wheel's build runs this file by its path, so it imports nothing of the package.
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
"""Place of the jar in a wheel that was built with a JDK."""

_PACKAGE: Final = "io/github/lakecommitter/spark"
_RELEASE: Final = f"{_PACKAGE}/release"
_SPARK: Final = f"{_PACKAGE}/spark"
_OLDEST_JAVA: Final = "17"
_TIMEOUT_S: Final = 300.0
_ZIP_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class CannotBuildError(Exception):
    """The jar cannot be built on this machine; the text names the missing part."""


def sources() -> list[Path]:
    """Lists the Java files by name."""
    return sorted(HERE.glob("*.java"))


def release() -> str:
    """Returns the digest of the sources; a jar belongs to this package if its digest is the same."""
    digest = hashlib.sha256()
    for source in sources():
        digest.update(f"{source.name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def release_of(jar: Path) -> str:
    """Returns the digest of the sources that a jar was built from; empty if unreadable."""
    return _read(jar, _RELEASE)


def compiled_for(jar: Path) -> str:
    """Returns the `spark_version` that a jar was compiled against; empty if unreadable."""
    return _read(jar, _SPARK)


def _read(jar: Path, name: str) -> str:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(name).decode("ascii").strip()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return ""


def serves(compiled: str, running: str) -> bool:
    """Reports whether a jar compiled for one `spark_version` runs on another: both of one feature release, as 4.3."""
    return _feature(compiled.partition("-")[2]) == _feature(running.removeprefix(f"{compiled.partition('-')[0]}-"))


def _feature(version: str) -> list[str]:
    return version.split(".")[:2]


def spark_jars(environment: Mapping[str, str] = os.environ) -> Path:
    """Finds the directory of Spark's jars: SPARK_HOME's, else the installed PySpark's."""
    home = environment.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    for place in (Path(home) if home else None, installed):
        if place is not None and any((place / "jars").glob("spark-core_*.jar")):
            return place / "jars"
    raise CannotBuildError("Spark's jars were not found: there is no PySpark with jars, and SPARK_HOME names none")


def spark_version(jars: Path) -> str:
    """Returns the version of Spark's jars, as ``2.13-4.3.0``."""
    core = next(jars.glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").removesuffix(".jar")


def find_javac(environment: Mapping[str, str] = os.environ) -> str:
    """Finds the Java compiler: JAVA_HOME's, else that of the PATH."""
    home = environment.get("JAVA_HOME")
    own = shutil.which("javac", path=str(Path(home, "bin"))) if home else None
    found = own or shutil.which("javac", path=environment.get("PATH"))
    if found is None:
        raise CannotBuildError("there is no Java compiler: no javac in JAVA_HOME or on the PATH")
    return found


def build(jar: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Builds the jar, which takes seconds; renames it into place, so that no process reads half of it."""
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
    """Packs compiled classes; equal classes give equal bytes."""
    contents = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    contents |= {_RELEASE: release().encode("ascii"), _SPARK: spark.encode("ascii")}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ZIP_EPOCH), b"Manifest-Version: 1.0\n")
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_EPOCH), contents[name])

"""Builds the jar of the commit protocol: `javac` against the signatures in `api.txt`, then one archive.

The wheel's build runs this file by its path, so it imports nothing of the package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PACKAGED: Final = HERE / "committer-spark.jar"
"""Place of the jar in a wheel."""

_RELEASE: Final = "io/github/lakecommitter/spark/release"
_FORMATS: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_NO_DATA_SOURCE: Final = b"io.github.lakecommitter.spark.NoDataSource\n"
_BYTECODE: Final = "8"
"""Oldest Java of a cluster of Spark 3.5."""

_CLASS: Final = re.compile(r"^public [\w ]*?(?:class|interface) ([\w$]+)", re.MULTILINE)
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
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(_RELEASE).decode("ascii").strip()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return ""


def spark_jars(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Finds the directory of Spark's jars: SPARK_HOME's, else the installed PySpark's; None if there is neither."""
    home = environment.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    for place in (Path(home) if home else None, installed):
        if place is not None and any((place / "jars").glob("spark-core_*.jar")):
            return place / "jars"
    return None


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
    javac = find_javac(environment)
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".committer-spark-", dir=jar.parent) as directory:
        api, classes = Path(directory, "api"), Path(directory, "classes")
        write_api(api)
        compile_sources(javac, classes, ["-implicit:none", "-cp", str(api)], _BYTECODE)
        whole = Path(directory, "whole.jar")
        _archive(classes, whole)
        whole.replace(jar)


def compile_sources(javac: str, classes: Path, against: list[str], bytecode: str) -> None:
    """Compiles the Java files; `against` are the compiler's options that name the classes which they use."""
    # Newer compilers warn of Java 8's bytecode.
    command = [javac, "--release", bytecode, "-Xlint:-options", "-proc:none", "-encoding", "UTF-8", *against]
    command += ["-d", str(classes), *map(str, sources())]
    try:
        done = subprocess.run(  # noqa: S603 - the compiler of the user's own environment
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotBuildError(f"{javac} did not run: {error}") from error
    if done.returncode != 0:
        raise CannotBuildError(f"{javac} refused the sources: {(done.stderr.strip() or done.stdout.strip())[:2000]}")


def write_api(directory: Path) -> None:
    """Writes each class of `api.txt` into a file of its own, as Java wants it."""
    for part in (HERE / "api.txt").read_text(encoding="utf-8").split("\npackage ")[1:]:
        package, name = part.partition(";")[0], _CLASS.search(part)
        if name is None:
            raise CannotBuildError(f"api.txt has no class in a part of {package}")
        file = directory.joinpath(*package.split("."), f"{name[1]}.java")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"package {part}", encoding="utf-8")


def _archive(classes: Path, jar: Path) -> None:
    """Packs compiled classes; equal classes give equal bytes."""
    contents = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    contents |= {_RELEASE: release().encode("ascii"), _FORMATS: _NO_DATA_SOURCE}
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ZIP_EPOCH), b"Manifest-Version: 1.0\n")
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_EPOCH), contents[name])

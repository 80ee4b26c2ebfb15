"""A standalone Spark cluster of two workers on this machine, started from the wheel, and drivers to run in it.

Spark starts a speculative copy of a task on another host only, so the workers have addresses of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from committer.errors import UnsupportedError
from committer.spark.examining import find_java
from tests.free_ports import free_port

HOSTS = ("127.0.0.2", "127.0.0.3")
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Below the time after which the whole run is ended (tests/hangs.py), whose processes nothing would end then.
ANSWER_WITHIN_S = 200.0
DRIVER = Path(__file__).with_name("cluster_driver.py")


def environment(scratch: Path) -> dict[str, str]:
    """What every process of Spark here is started with."""
    try:
        java = find_java()
    except UnsupportedError as error:
        pytest.skip(str(error))
    scratch.mkdir(parents=True, exist_ok=True)
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(scratch / "pycache")),
        "PYTHONWARNINGS": "ignore",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_LOCAL_DIRS": str(scratch),
        "LC_ALL": "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8",
    }


@contextlib.contextmanager
def standalone_cluster(scratch: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Starts a master and two workers of two cores each; yields the master's URL, and ends them by their ids."""
    import pyspark

    variables = environment(scratch) | dict(more or {})
    for host in HOSTS:
        try:
            free_port(host)
        except OSError:
            pytest.skip(f"this machine has no address {host}")
    home = Path(pyspark.__file__).parent
    variables["SPARK_HOME"] = str(home)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    commands = [[deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", str(port)]]
    for host in HOSTS:
        sizes = ["--cores", "2", "--memory", "1g", "--work-dir", str(scratch / "work" / host)]
        commands.append([deploy[0], f"{deploy[1]}.worker.Worker", "--host", host, *sizes, master])
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((scratch / f"daemon-{number}.log").open("wb"))
            process = subprocess.Popen(
                [*command[:2], "--webui-port", "0", *command[2:]],
                env=variables,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )
            stack.callback(_end, process)
            if number == 0:
                wait_until(lambda: _listens(port), 60, "Spark's master to listen")
        yield master


class Driver:
    """A Spark driver in a process of its own: runs the scenarios of a script, one at a time.

    Args:
        master: Where Spark runs, for example a cluster's URL.
        scratch: For its log and temporary files.
        script: Where the scenarios are.
        more: Environment variables.
    """

    def __init__(
        self, master: str, scratch: Path, script: Path = DRIVER, more: Mapping[str, str] | None = None
    ) -> None:
        variables = environment(scratch) | dict(more or {})
        self.log = scratch / "driver.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), master],
                env=variables,
                cwd=scratch,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def run(self, scenario: str, **arguments: object) -> Any:
        """Runs a scenario and returns what it tells."""
        self.start(scenario, **arguments)
        return self._answer()

    def start(self, scenario: str, **arguments: object) -> None:
        """Begins a scenario in which the driver is going to die."""
        assert self.process.stdin is not None
        print(json.dumps({"scenario": scenario, **arguments}), file=self.process.stdin, flush=True)

    def close(self) -> None:
        """Ends it, properly where it still can."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        _end(self.process, ask=False)

    def kill_everything(self) -> None:
        """SIGKILL for the driver, its Java and its Python workers: the machine is gone."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        bound = threading.Timer(ANSWER_WITHIN_S, self.process.kill)
        bound.start()
        try:
            line = self.process.stdout.readline()
        finally:
            bound.cancel()
        if not line:
            text = self.log.read_text(errors="replace")
            raise AssertionError(f"the driver ended with {self.process.wait(30)}:\n{text[-4000:]}")
        answer = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return answer["told"]


def descendants(pid: int) -> list[int]:
    """The processes below one, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found = parents.get(pid, [])
    return found + [below for child in found for below in descendants(child)]


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.02)


def _die_with_parent() -> None:
    """Linux ends this process when a test run is ended that could not end it itself (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[Any], *, ask: bool = True) -> None:
    if ask:
        process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)

"""What records hold of the process that drives a job, and whether that process is seen to run, or to be dead."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.driver_process import DriverProcess, state_of, this_driver
from committer.options.config import _DRIVER_PARTS
from committer.sync import list_jobs, load_record, open_job
from tests.job_paths import in_job

IMPOSTOR = "import sys\nprint(sys.argv, flush=True)\nsys.stdin.read()\n"

pytestmark = pytest.mark.allow_blocking("reads /proc")


def started() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", IMPOSTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def as_recorded(pid: int) -> DriverProcess:
    """What that process would have recorded of itself."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return msgspec.structs.replace(this_driver(), pid=pid, started=int(stat[19]))


def test_this_process_runs() -> None:
    own = this_driver()
    assert (own.host, own.pid) == (platform.node(), os.getpid())
    assert own.user
    assert own.program
    assert state_of(own) == "running"


def test_a_process_is_dead_once_it_is_killed_whether_or_not_it_was_waited_for() -> None:
    with started() as process:
        assert process.stdout is not None
        process.stdout.readline()
        recorded = as_recorded(process.pid)
        assert state_of(recorded) == "running"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}").exists()
        assert state_of(recorded) == "dead"
    assert state_of(recorded) == "dead"


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({"started": 1}, "dead"),
        ({"host": "elsewhere"}, "unknown"),
        ({"boot": "another"}, "unknown"),
        ({"boot": ""}, "unknown"),
        ({"pid": 0}, "unknown"),
        ({"pid": -1}, "unknown"),
        ({"pid": 1 << 80}, "unknown"),
        ({"started": 0}, "unknown"),
    ],
)
def test_what_is_not_certain_is_unknown(changed: dict[str, int | str], state: str) -> None:
    """A process that has the id of one that ended started at another time."""
    assert state_of(msgspec.structs.replace(this_driver(), **changed)) == state


def test_no_record_is_unknown() -> None:
    assert state_of(None) == "unknown"
    assert state_of(DriverProcess()) == "unknown"


@pytest.mark.parametrize("hidden", [(), ("host",), ("process", "program"), ("user",), _DRIVER_PARTS])
def test_each_part_can_be_left_out(tmp_path: Path, hidden: tuple[str, ...]) -> None:
    open_job(tmp_path, job_id="J", config=CommitterConfig(driver_hidden=hidden)).close()
    process = load_record(in_job(tmp_path, "J", "setup")).process
    assert bool(process.host) == bool(process.boot) == ("host" not in hidden)
    assert bool(process.pid) == bool(process.started) == ("process" not in hidden)
    assert bool(process.user) == ("user" not in hidden)
    assert bool(process.program) == ("program" not in hidden)
    [info] = list_jobs(tmp_path)
    assert info.driver == process
    assert info.driver_state == ("unknown" if {"host", "process"} & set(hidden) else "running")


@pytest.mark.parametrize("hidden", [(), ("host",), ("user",)])
def test_success_file_and_report_name_host_and_user_unless_they_are_hidden(
    tmp_path: Path, hidden: tuple[str, ...]
) -> None:
    config = CommitterConfig(driver_hidden=hidden, summary_report_directory=str(tmp_path / "reports"))
    with open_job(tmp_path / "t", job_id="J", config=config) as job:
        job.commit()
    for path in (tmp_path / "t" / "_SUCCESS", *(tmp_path / "reports").iterdir()):
        told = load_record(path)
        assert bool(told.hostname) == ("host" not in hidden)
        assert ("principal" in told.diagnostics) == ("user" not in hidden)


def test_the_parts_that_a_config_knows_are_all() -> None:
    assert this_driver(_DRIVER_PARTS) == DriverProcess()


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(committer.errors.ConfigurationError, match="driver_hidden"):
        CommitterConfig(driver_hidden=("arguments",))


def test_the_program_is_named_without_its_arguments(tmp_path: Path) -> None:
    """An argument may be a secret."""
    script = tmp_path / "load.py"
    script.write_text("import sys\nfrom committer.sync import open_job\nopen_job(sys.argv[1], job_id='J').close()\n")
    path = os.pathsep.join([str(Path(committer.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), str(tmp_path / "t"), "--password=hunter2"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    record = in_job(tmp_path / "t", "J", "setup").read_bytes()
    assert b"hunter2" not in record
    assert b'"program": "load.py"' in record
    [info] = list_jobs(tmp_path / "t")
    assert info.driver_state == "dead"


@pytest.mark.parametrize("executor", [False, True])
def test_a_python_process_of_sparks_jvm_names_the_jvm_and_none_on_an_executor(tmp_path: Path, executor: bool) -> None:
    """Such a process ends before the job: a job set up there has a driver as long as the JVM runs."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    (tmp_path / "pyspark/daemon.py").write_text(
        "from committer.driver_process import this_driver\nprint(this_driver().pid)\n"
    )
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    # Two processes below it, as a worker is below the daemon.
    worker = f"{sys.executable} -m pyspark.daemon; exit"
    code = f"import os, subprocess; print(os.getpid(), flush=True); subprocess.run(['sh', '-c', {worker!r}])"
    root = str(Path(committer.__file__).parents[1])
    named = ["org.apache.spark.executor.CoarseGrainedExecutorBackend"] if executor else []
    done = subprocess.run(
        [str(java), "-c", code, *named],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
        capture_output=True,
        text=True,
        check=True,
    )
    jvm, driver = done.stdout.split()
    assert driver == ("0" if executor else jvm), done.stderr

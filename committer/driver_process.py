"""The process that drives a job: its record, and whether it still runs on this machine."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from committer.readable import clean

DriverState: TypeAlias = Literal["running", "dead", "unknown"]

_LONGEST_WORDS: Final = 300
_PROC: Final = Path("/proc")
_OF_A_JVM: Final = ("pyspark.", "committer.spark.job_side")


class DriverProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process of a driver. Hidden or unknown fields are empty or 0.

    Attributes:
        host: Name of its machine.
        boot: Boot id of the kernel, and the namespaces in which process ids and start times mean the same.
        pid: Its process id. A Python process that Spark's JVM started names the JVM; one on an executor names none.
        started: When it started, in clock ticks after the boot.
        user: Name of its user.
        program: Name of its program, never with arguments.
    """

    host: str = ""
    boot: str = ""
    pid: int = 0
    started: int = 0
    user: str = ""
    program: str = ""

    @property
    def words(self) -> str:
        """The process in a few words."""
        named = [
            self.program or "a program",
            f"of {self.user}" if self.user else "",
            f"as process {self.pid}" if self.pid else "",
            f"on {self.host}" if self.host else "",
        ]
        # A record is untrusted.
        return clean(" ".join(filter(None, named)))[:_LONGEST_WORDS]


def this_driver(hidden: Collection[str] = ()) -> DriverProcess:
    """Describes the driver process of this process's jobs, without the `hidden` parts: see `CommitterConfig`.

    Reads `/proc` unless `is_known`: not for an event loop then.
    """
    own = os.getpid()
    whole = _known.get(own) or _known.setdefault(own, _look())
    fields = {"host": ("host", "boot"), "process": ("pid", "started"), "user": ("user",), "program": ("program",)}
    shown = [field for part, names in fields.items() if part not in hidden for field in names]
    return DriverProcess(**{field: getattr(whole, field) for field in shown})


def is_known() -> bool:
    """Returns whether this process is described already: true after the import, false after a fork."""
    return os.getpid() in _known


def _look() -> DriverProcess:
    pid = _driver_pid()
    return DriverProcess(
        host=platform.node(), boot=_boot(), pid=pid, started=_started(pid) or 0, user=_user(), program=_program(pid)
    )


def state_of(driver: DriverProcess | None) -> DriverState:
    """Returns whether a driver runs: "unknown" for other machines, boots and process namespaces.

    Reads `/proc`: not for an event loop.
    """
    if driver is None or not (driver.boot and driver.pid > 0 and driver.started):
        return "unknown"
    if (driver.host, driver.boot) != (platform.node(), _boot()):
        return "unknown"
    try:
        os.kill(driver.pid, 0)
    except ProcessLookupError:
        return "dead"
    except (OSError, OverflowError):
        # Another user's process; or a record that no driver wrote.
        pass
    started = _started(driver.pid)
    if started is None:
        # `/proc` may hide the processes of other users.
        return "unknown"
    return "running" if started == driver.started else "dead"


def _boot() -> str:
    try:
        spaces = " ".join(os.readlink(_PROC / "self/ns" / kind) for kind in ("pid", "time"))
        # In a nested process namespace `/proc` may show the outer one's processes.
        same = os.readlink(_PROC / "self") == str(os.getpid())
        return f"{_read(_PROC / 'sys/kernel/random/boot_id')} {spaces}" if same else ""
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Returns when a process started; 0 for a zombie, None if that is hidden."""
    try:
        # The name, in parentheses, may contain blanks and parentheses.
        state, *fields = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
        ended = state in "ZX" and len(os.listdir(_PROC / str(pid) / "task")) <= 1
        return 0 if ended else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def _driver_pid() -> int:
    main = _main()
    if not main.startswith(_OF_A_JVM):
        return os.getpid()
    # Spark's Python processes end before the job does, so the JVM above them counts; an executor's JVM does not.
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            if _read(_PROC / str(pid) / "comm") == "java":
                return 0 if "ExecutorBackend" in _read(_PROC / str(pid) / "cmdline") else pid
            pid = int(_read(_PROC / str(pid) / "stat").rpartition(")")[2].split()[1])
    return 0


def _program(pid: int) -> str:
    if pid != os.getpid():
        return "java" if pid else ""
    name = _main().removesuffix(".__main__") or os.path.basename(sys.argv[0] if sys.argv else "")
    return _text(name if name not in ("", "-c", "-") else os.path.basename(sys.executable))


def _main() -> str:
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")


@cache
def _user() -> str:
    try:
        return _text(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return str(os.geteuid())


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _text(name: str) -> str:
    """Returns a name of the system as text that JSON can hold."""
    return name.encode(errors="replace").decode()


_known: Final[dict[int, DriverProcess]] = {os.getpid(): _look()}

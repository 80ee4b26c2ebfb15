"""The system calls of the local store, counted, and made to fail, to be the last, or to wait.

Only what the store's own threads call counts. Names that Python resolves at each call (`os.rename`) are replaced in this
process, so this belongs into one that was forked for a single run.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from committer.paths import StorePath
from committer.stores.local import disk, kernel_rename, places
from tests.disk_sweep.meaning import Call, Operation

NAMES: Final = (
    "open", "close", "read", "pwrite", "fstat", "stat", "lstat", "access", "scandir", "mkdir", "rmdir", "unlink",
    "rename", "link", "fsync",
)  # fmt: skip
CHANGING: Final = frozenset({"create", "mkdir", "rmdir", "unlink", "rename", "link", "rename_no_replace"})

_WRITES: Final = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO", "ESTALE")
_LOOKS: Final = ("EIO", "ESTALE", "EACCES")
ERRORS: Final[dict[str, tuple[str, ...]]] = {
    "create": (*_WRITES, "EMFILE"),
    "open": (*_LOOKS, "EMFILE"),
    "openat2": (*_LOOKS, "EMFILE"),
    "close": ("EIO", "ENOSPC", "EDQUOT", "ESTALE"),
    "read": ("EIO", "ESTALE"),
    "pwrite": ("ENOSPC", "EDQUOT", "EIO", "ESTALE"),
    "fstat": ("EIO", "ESTALE"),
    "stat": _LOOKS,
    "lstat": _LOOKS,
    "access": _LOOKS,
    "scandir": (*_LOOKS, "EMFILE"),
    "mkdir": _WRITES,
    "rmdir": ("EROFS", "EACCES", "EIO", "ESTALE"),
    "unlink": ("EROFS", "EACCES", "EIO", "ESTALE"),
    "rename": _WRITES,
    "link": _WRITES,
    "fsync": ("EIO", "ENOSPC", "EDQUOT", "EINVAL"),
    # ctypes does not call again by itself.
    "rename_no_replace": (*_WRITES, "EINTR"),
}
"""What each call can fail with."""


_RECORDS: Final = ("setup", "intent", "decision", "outcome")
PHASES: Final = ("", *_RECORDS, "finished")
"""Where a record stands, a job begins another phase; where an outcome is put again, the last."""


@dataclass
class Gate:
    """What happens at the nth call.

    Attributes:
        number: Which call; 0 for none.
        what: ``once`` or ``on`` (it fails, then or from then on), ``late`` (it is done and fails), ``before`` or
            ``after`` (the process ends), ``stop`` (it waits before it).
        error: The name of the error number.
        trouble: What happens to the disk before the call, where it gets full or read-only, or an intruder comes; it is
            told the store call that is under way.
        ends_at: Where the process ends: in which phase, before which store call (how its name and first path begin, in
            a pattern's spelling), and which of them.
        seen: Every call so far.
    """

    number: int = 0
    what: str = ""
    error: str = ""
    trouble: Callable[[Operation], None] | None = None
    ends_at: tuple[str, str, int] | None = None
    seen: list[Call] = field(default_factory=list)
    phase: str = ""
    under_way: Operation = field(default_factory=lambda: Operation("", ()))
    index: int = 0

    def call(self, name: str, do: Callable[[], Any], fail: Callable[[OSError], Any], at: str) -> Any:
        """One system call."""
        if not threading.current_thread().name.startswith("committer-local"):
            return do()
        self.seen.append(Call(name, at, self.phase, self.under_way.meaning, self.index))
        self.index += 1
        number = len(self.seen)
        if self.what == "on" and self.number and number >= self.number and self.error in ERRORS[name]:
            return self._failed(name, do, fail)
        if number != self.number:
            return do()
        if self.what == "once":
            return self._failed(name, do, fail)
        if self.what == "before":
            os._exit(9)
        if self.what == "stop":
            # To this thread: of a signal to the process another one may take note, a moment later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        if self.trouble is not None:
            self._meets_trouble(self.trouble)
        done = do()
        if self.what == "after":
            os._exit(9)
        return self._failed(name, None, fail) if self.what == "late" else done

    def _meets_trouble(self, trouble: Callable[[Operation], None]) -> None:
        count, index, self.trouble, self.number = len(self.seen), self.index, None, 0
        trouble(self.under_way)
        del self.seen[count:]
        self.index = index

    def begin(self, operation: Operation) -> None:
        """A store call, or a part of one that is one itself, begins."""
        self.under_way, self.index = operation, 0
        if self.ends_at is None:
            return
        phase, beginning, count = self.ends_at
        if phase == self.phase and operation.meaning.startswith(beginning):
            if count == 1:
                os._exit(9)
            self.ends_at = phase, beginning, count - 1

    def end(self, operation: Operation) -> None:
        """It came to its end."""
        name = operation.paths[0].rpartition("/")[2] if operation.paths else ""
        name = "intent" if name.startswith("intent-") else name
        if operation.name == "put" and name in _RECORDS:
            self.phase = name

    def _failed(self, name: str, do: Callable[[], Any] | None, fail: Callable[[OSError], Any]) -> Any:
        if name == "close" and do is not None:
            # The descriptor is gone whatever close(2) says.
            do()
        number = getattr(errno, self.error)
        return fail(OSError(number, os.strerror(number)))


def _paths_in(args: Any) -> Iterator[str]:
    for arg in args:
        if isinstance(arg, StorePath):
            yield arg.path
        elif isinstance(arg, list | tuple):
            yield from _paths_in(arg)


def _raise(error: OSError) -> Any:
    raise error


def _refused(_error: OSError) -> bool:
    return False


def _as_in_c(error: OSError) -> int:
    ctypes.set_errno(error.errno or 0)
    return -1


def install(gate: Gate) -> None:
    """Puts a gate before every system call of this process."""

    def watched(name: str, call: Callable[..., Any], fail: Callable[[OSError], Any] = _raise) -> Callable[..., Any]:
        @functools.wraps(call)
        def go(*args: Any, **kwargs: Any) -> Any:
            at = " ".join(str(arg) for arg in args if isinstance(arg, str))
            called = "create" if name == "open" and args[1] & os.O_CREAT else name
            return gate.call(called, lambda: call(*args, **kwargs), fail, at)

        return go

    def known(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def go(disk: Any, *args: Any, **kwargs: Any) -> Any:
            above = gate.under_way, gate.index
            operation = Operation(name, tuple(_paths_in(args)))
            gate.begin(operation)
            done = method(disk, *args, **kwargs)
            gate.end(operation)
            gate.under_way, gate.index = above
            return done

        return go

    for name in dir(disk.Disk):
        method = getattr(disk.Disk, name)
        if hasattr(method, "__wrapped__") or name == "rename_files":
            setattr(disk.Disk, name, known(name, method))
    for name in NAMES:
        setattr(os, name, watched(name, getattr(os, name), _refused if name == "access" else _raise))
    kernel_rename.rename_no_replace = watched("rename_no_replace", kernel_rename.rename_no_replace)
    opened = places._kernel_opens()
    if opened is not None:
        passed = watched("openat2", opened, _as_in_c)
        places._kernel_opens = lambda: passed  # type: ignore[assignment]

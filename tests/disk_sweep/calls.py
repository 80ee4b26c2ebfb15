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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from committer.stores import _places, _renames

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


@dataclass
class Gate:
    """What happens at the nth call.

    Attributes:
        number: Which call; 0 for none.
        what: ``once`` or ``on`` (it fails, then or from then on), ``late`` (it is done and fails), ``before`` or
            ``after`` (the process ends), ``stop`` (it waits before it).
        error: The name of the error number.
        trouble: What a ``full`` or ``read-only`` disk begins with, before the call.
        seen: Every call so far: its name, and what it was called with.
    """

    number: int = 0
    what: str = ""
    error: str = ""
    trouble: Callable[[], None] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)

    def call(self, name: str, do: Callable[[], Any], fail: Callable[[OSError], Any], at: str) -> Any:
        """One system call."""
        if not threading.current_thread().name.startswith("committer-local"):
            return do()
        self.seen.append((name, at))
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

    def _meets_trouble(self, trouble: Callable[[], None]) -> None:
        count, self.trouble, self.number = len(self.seen), None, 0
        trouble()
        del self.seen[count:]

    def _failed(self, name: str, do: Callable[[], Any] | None, fail: Callable[[OSError], Any]) -> Any:
        if name == "close" and do is not None:
            # The descriptor is gone whatever close(2) says.
            do()
        number = getattr(errno, self.error)
        return fail(OSError(number, os.strerror(number)))


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

    for name in NAMES:
        setattr(os, name, watched(name, getattr(os, name), _refused if name == "access" else _raise))
    _renames.rename_no_replace = watched("rename_no_replace", _renames.rename_no_replace)
    opened = _places._kernel_opens()
    if opened is not None:
        passed = watched("openat2", opened, _as_in_c)
        _places._kernel_opens = lambda: passed  # type: ignore[assignment]

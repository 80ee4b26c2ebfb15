"""File systems of a run's own, in a mount namespace of its own: one that gets full, or read-only, under a job.

Only in a process started with `unshare --mount`, so that nothing is left mounted anywhere.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_READ_ONLY = 1
_REMOUNT = 32
_CHUNK = b"\0" * 4096


def mount(target: str) -> None:
    """Mounts a small tmpfs."""
    os.makedirs(target, exist_ok=True)
    _mount(b"tmpfs", target, b"tmpfs", 0, b"size=1m,nr_inodes=400")


def unmount(target: str) -> None:
    """Takes it away."""
    detach = 2
    ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(target), detach)


def begin(what: str, target: str) -> None:
    """Makes it full, or read-only, from now on."""
    if what == "full":
        handle = os.open(os.path.join(target, "filler"), os.O_WRONLY | os.O_CREAT, 0o600)
        with suppress(OSError):
            while True:
                os.write(handle, _CHUNK)
        os.close(handle)
        with suppress(OSError):
            for number in range(1000):
                os.mkdir(os.path.join(target, f"filler-{number}"))
    else:
        # EBUSY where a file is open for writing: then the job meets nothing.
        with suppress(OSError):
            _mount(None, target, None, _REMOUNT | _READ_ONLY, None)


def end(what: str, target: str) -> None:
    """Makes it usable again."""
    if what == "full":
        for name in os.listdir(target):
            if name == "filler":
                os.unlink(os.path.join(target, name))
            elif name.startswith("filler"):
                os.rmdir(os.path.join(target, name))
    else:
        _mount(None, target, None, _REMOUNT, None)


def _mount(source: bytes | None, target: str, kind: bytes | None, flags: int, data: bytes | None) -> None:
    call = ctypes.CDLL(None, use_errno=True).mount
    call.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    if call(source, os.fsencode(target), kind, flags, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)

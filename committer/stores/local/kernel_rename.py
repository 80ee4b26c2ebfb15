"""System calls that Python lacks: a rename that replaces nothing, and an exchange of two names."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import sys
from collections.abc import Callable
from typing import Final

# The current directory (AT_FDCWD); a whole path ignores it.
_ANYWHERE: Final = -2 if sys.platform == "darwin" else -100
# RENAME_EXCL on macOS, RENAME_NOREPLACE on Linux.
_EXCLUSIVELY: Final = 4 if sys.platform == "darwin" else 1
# RENAME_SWAP on macOS, RENAME_EXCHANGE on Linux.
_EXCHANGE: Final = 2
# System call numbers for C libraries without a wrapper (musl before 1.2.6, glibc before 2.28).
_SYSTEM_CALL: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}

# As in `os.fsencode`, which takes three times as long.
ENCODING: Final = sys.getfilesystemencoding()
ENCODE_ERRORS: Final = sys.getfilesystemencodeerrors()

# Raised by kernels and file systems without the flag.
NOT_OFFERED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def _find() -> Callable[[int, bytes, int, bytes, int], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        exclusive = library.renameatx_np
        exclusive.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        return exclusive
    if not sys.platform.startswith("linux"):
        return None
    try:
        wrapper = library.renameat2
    except AttributeError:
        number = _SYSTEM_CALL.get(platform.machine())
        if number is None:
            return None
        call = library.syscall
        call.restype = ctypes.c_long
        call.argtypes = (
            ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
        )  # fmt: skip
        return functools.partial(call, number)
    wrapper.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return wrapper


_rename: Final = _find()

OFFERED: Final = _rename is not None


def rename_no_replace(
    source: str, destination: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Renames a file or directory in one step; fails if `destination` exists.

    Raises OSError as rename(2) does; EEXIST if the destination exists; one of `NOT_OFFERED` if the file system
    cannot do it. EINVAL also means a directory moved into itself.
    """
    near = _ANYWHERE if src_dir_fd is None else src_dir_fd
    at = _ANYWHERE if dst_dir_fd is None else dst_dir_fd
    _call(near, source, at, destination, _EXCLUSIVELY)


def exchange(first: str, second: str) -> None:
    """Exchanges the entries at two absolute paths in one step; raises as `rename_no_replace`."""
    _call(_ANYWHERE, first, _ANYWHERE, second, _EXCHANGE)


def _call(near: int, source: str, at: int, destination: str, flags: int) -> None:
    if _rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source, None, destination)
    first, second = source.encode(ENCODING, ENCODE_ERRORS), destination.encode(ENCODING, ENCODE_ERRORS)
    if _rename(near, first, at, second, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source, None, destination)

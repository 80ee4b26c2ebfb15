"""Checksums of objects as the service verifies them: CRC32C where Google's library is installed, else MD5."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Final

from committer.stores.http import Body

_extend: Callable[[int, bytes], int] | None
try:
    from google_crc32c import extend as _extend
except ImportError:
    _extend = None

# Longer bodies are summed in a thread.
LONG_BODY_BYTES: Final = 1 << 20


class Checksum:
    """A checksum of bytes that come one after the other.

    Attributes:
        field: The field of an object's resource that holds it.
        header: Its name in ``X-Goog-Hash``.
    """

    field: Final = "md5Hash" if _extend is None else "crc32c"
    header: Final = "md5" if _extend is None else "crc32c"

    def __init__(self) -> None:
        self._crc = 0
        self._md5 = hashlib.md5(usedforsecurity=False) if _extend is None else None

    @classmethod
    def of(cls, begun: Checksum, data: Body) -> Checksum:
        """A checksum that was begun, with bytes that end it; the other stays as it is."""
        made = cls()
        made._crc = begun._crc
        made._md5 = None if begun._md5 is None else begun._md5.copy()
        made.update(data)
        return made

    def update(self, data: Body) -> None:
        """Adds bytes."""
        if self._md5 is not None:
            self._md5.update(data)
        elif _extend is not None:
            self._crc = _extend(self._crc, bytes(data))

    def text(self) -> str:
        """It, in base64."""
        raw = self._md5.digest() if self._md5 is not None else self._crc.to_bytes(4, "big")
        return base64.b64encode(raw).decode()

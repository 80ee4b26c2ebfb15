"""Checksums of objects as the service keeps them: base64 of the CRC32C in big-endian byte order, and of the MD5."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib import import_module


def crc32c_of(data: bytes) -> str:
    """The CRC32C."""
    return base64.b64encode(_crc32c(data).to_bytes(4, "big")).decode()


def md5_of(data: bytes) -> str:
    """The MD5."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _in_python() -> Callable[[bytes], int]:
    # The polynomial of Castagnoli, reflected (RFC 3720, appendix B.4).
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)

    def compute(data: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ table[(crc ^ byte) & 255]
        return crc ^ 0xFFFFFFFF

    return compute


def _fastest() -> Callable[[bytes], int]:
    try:
        # What the extra `gcs` brings; the emulator works without, slowly for large objects.
        value: Callable[[bytes], int] = import_module("google_crc32c").value
    except ImportError:
        return _in_python()
    return value


_crc32c = _fastest()

"""What msgspec raises of bytes that are no JSON, or none of the wanted form."""

from __future__ import annotations

from typing import Final

import msgspec

# Text that is not UTF-8, and lists in lists in lists, are no errors of its own.
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Every place that decodes what a store, a service or another process said catches all of these."""


def encoded(data: object) -> bytes | str:
    """What a caller gave to be decoded, as msgspec takes it.

    Raises:
        TypeError: It is neither text nor a buffer.
    """
    if isinstance(data, str):
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"it is bytes or text, not a {type(data).__name__}")

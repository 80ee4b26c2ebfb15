"""What msgspec raises of bytes that are no JSON, or none of the wanted form."""

from __future__ import annotations

from typing import Final

import msgspec

# Text that is not UTF-8, and lists in lists in lists, are no errors of its own.
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Every place that decodes what a store, a service or another process said catches all of these."""

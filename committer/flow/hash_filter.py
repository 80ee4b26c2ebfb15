"""A set of very many hashes in a few bits each, which may take one for another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Bits for each hash there may be.
_ROOM: Final = 8


class HashFilter:
    """Hashes in one to two bytes each. All that were added are in it, and up to one in eight of those that were not.

    Args:
        most: How many there may be.

    Attributes:
        count: Hashes added so far.
    """

    def __init__(self, most: int) -> None:
        self.count: int = 0
        size = 1 << max(3, (most * _ROOM - 1).bit_length())
        self._mask = size - 1
        self._bits = bytearray(size // 8)

    def update(self, numbers: Iterable[int]) -> None:
        """Adds some."""
        bits, mask = self._bits, self._mask
        for number in numbers:
            place = number & mask
            bits[place >> 3] |= 1 << (place & 7)
            self.count += 1

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = number & self._mask
        return bool(self._bits[place >> 3] & 1 << (place & 7))

    def __len__(self) -> int:
        return self.count

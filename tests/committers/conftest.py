"""Places that functional tests run on."""

from tests.places import flat, memory, place

__all__ = ["flat", "memory", "place"]

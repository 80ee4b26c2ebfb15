"""Preconditions: `ifGenerationMatch` and its relatives, for the object in the URL and for the source of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from committer_testing.emulators.gcs.errors import ServiceError


class Versioned(Protocol):
    """What preconditions look at."""

    generation: int
    metageneration: int


class Preconditions:
    """Those of one request ("Request preconditions").

    Args:
        query: The request's parameters, or what a compose request says of one of its sources.
        kind: `Source` for those on the source of a move, a rewrite or a copy.

    Raises:
        ServiceError: One is no number.

    Attributes:
        given: Whether there are any.
    """

    __slots__ = ("_generation", "_metageneration", "_not_generation", "_not_metageneration", "given")

    def __init__(self, query: Mapping[str, object], kind: str = "") -> None:
        self._generation = _number(query, f"if{kind}GenerationMatch")
        self._not_generation = _number(query, f"if{kind}GenerationNotMatch")
        self._metageneration = _number(query, f"if{kind}MetagenerationMatch")
        self._not_metageneration = _number(query, f"if{kind}MetagenerationNotMatch")
        self.given: bool = not (
            self._generation is self._not_generation is self._metageneration is self._not_metageneration is None
        )

    def check(self, existing: Versioned | None) -> None:
        """Raises ServiceError (conditionNotMet) unless all hold; what is absent has generation 0."""
        if not self.given:
            return
        generation = existing.generation if existing is not None else 0
        if self._generation not in {None, generation} or self._not_generation == generation:
            raise ServiceError("conditionNotMet")
        if existing is None:
            if self._metageneration is not None:
                raise ServiceError("conditionNotMet")
        elif (
            self._metageneration not in {None, existing.metageneration}
            or self._not_metageneration == existing.metageneration
        ):
            raise ServiceError("conditionNotMet")

    def check_read(self, existing: Versioned) -> None:
        """As `check`, for reads, where a failed "not match" is 304."""
        if existing.generation == self._not_generation or existing.metageneration == self._not_metageneration:
            raise ServiceError("notModified")
        self.check(existing)


def _number(query: Mapping[str, object], name: str) -> int | None:
    value = query.get(name)
    if value is None:
        return None
    text = str(value)
    if not text.isascii() or not text.isdigit():
        raise ServiceError("invalid", f"Invalid value for {name}: {text}")
    return int(text)

"""Optional abilities for programs that examine stores, such as `committer doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from committer.paths import StorePath
from committer.stores.abilities import Ability

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


class Finding(msgspec.Struct, frozen=True):
    """Result of one test of a store.

    Attributes:
        name: What was tested.
        verdict: ``ok``; ``warning`` if jobs work and the user should know something; ``failed``; ``skipped`` if
            nothing could be found out.
        found: What was seen, or said by the service.
        next_step: What to do about it; empty if nothing is known.
    """

    name: str
    verdict: Verdict
    found: str
    next_step: str = ""


class SupportsExamination(Protocol):
    """Ability to ask the store's service about itself, or to try it out: services of one protocol differ."""

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> Sequence[Finding]:
        """Asks the service about itself and about a directory, or the nearest existing one above it.

        Raises no error of the service: a refused or lost response is a finding that is ``skipped``. Questions are
        bounded in time.

        Args:
            scratch: An empty directory in which to try each ability that a job uses, where only that tells; None to
                change nothing. The caller removes files that are left in it; no upload is left.
        """


EXAMINATION: Final[Ability[SupportsExamination]] = Ability(
    SupportsExamination, "examination", lambda can: can.examination
)

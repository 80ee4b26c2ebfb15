"""What a store tells of itself beyond what a trial shows: an optional ability, for programs that examine stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from committer.paths import StorePath
from committer.stores.abilities import Ability

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was tried or asked.

    Attributes:
        name: What.
        verdict: ``ok``; ``warning``, where a job works and its user should know something; ``failed``; or ``skipped``,
            where nothing could be found out.
        found: What was seen or said.
        next_step: What to do about it; empty when nothing is known.
    """

    name: str
    verdict: Verdict
    found: str
    next_step: str = ""


class SupportsExamination(Protocol):
    """The store's service can be asked what it is."""

    async def findings(self, directory: StorePath) -> Sequence[Finding]:
        """What the service says of itself and of a directory, or of the nearest one above it that exists.

        Changes nothing and raises no error of the service: an answer that is refused or lost is a finding that is
        ``skipped``. Bounded in time.
        """


class SupportsTrials(Protocol):
    """The store's service can be tried: services that speak one protocol differ in what they keep of it."""

    async def trials(self, directory: StorePath) -> Sequence[Finding]:
        """What was seen where each ability that a job uses was tried by itself.

        Args:
            directory: Where files and uploads are made: nothing is there, and the caller removes what is left. No
                upload is left.
        """


EXAMINATION: Final[Ability[SupportsExamination]] = Ability(
    SupportsExamination, "examination", lambda can: can.examination
)
TRIALS: Final[Ability[SupportsTrials]] = Ability(SupportsTrials, "trials", lambda can: can.trials)

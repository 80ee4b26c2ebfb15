"""Optional abilities for programs that examine stores, such as `committer doctor`, and a test of renames."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import Store

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


async def probe_renames(store: Store, directory: StorePath, *, subject: str, instead: str) -> None:
    """Renames a file of its own, and tries to replace a file that it must not replace. 8 calls; leaves nothing.

    `subject` begins its errors ("this account"), `instead` their advice. Raises `UnsupportedError` if a rename
    changes the identity, or replaces a file that it was told not to replace.
    """
    next_step = f"{instead}; an emulator or a proxy may differ"
    nonce = current_runtime().nonce()
    one, other = directory / f".probe-{nonce}-1", directory / f".probe-{nonce}-2"
    try:
        put = await store.put(one, b"probe", exclusive=True)
        # After a lost response the next look decides.
        with suppress(StoreOutcomeUnknownError, StoreNotFoundError):
            await store.rename_file(one, other, identity=put.identity)
        moved = await store.status(other)
        if moved.identity != put.identity:
            raise UnsupportedError(
                f"{subject} changes a file's identity when it is renamed, so nothing proves which file was renamed",
                operation="probe",
                path=directory,
                next_step=next_step,
            )
        again = await store.put(one, b"again!", exclusive=True)
        try:
            await store.rename_file(one, other, identity=again.identity)
        except StoreExistsError:
            return
        except StoreOutcomeUnknownError:
            standing = await store.status(other)
            if (standing.identity, standing.size) == (put.identity, put.size):
                return
        raise UnsupportedError(
            f"{subject} lets a rename replace a file that it was told not to replace",
            operation="probe",
            path=directory,
            next_step=next_step,
        )
    finally:
        for path in (one, other):
            with suppress(StoreError):
                await store.delete_file(path)

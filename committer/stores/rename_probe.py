"""Test whether a store's renames do what a commit relies on."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store


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

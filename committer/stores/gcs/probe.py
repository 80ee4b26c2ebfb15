"""Whether a service keeps what a commit relies on: what a trial shows."""

from __future__ import annotations

from contextlib import suppress

from committer.documentation import page
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


async def probe(store: Store, directory: StorePath) -> None:
    """See `Store.probe`: moves a file of its own, and tries to replace what it must not replace.

    Raises:
        UnsupportedError: The service has no moves, replaces what it was told to spare, or keeps no metadata.
    """
    nonce = current_runtime().nonce()
    one, other = directory / f".probe-{nonce}-1", directory / f".probe-{nonce}-2"
    try:
        put = await store.put(one, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(one, b"other", exclusive=True)
            raise _unsupported("lets a put replace what it was told not to replace (ifGenerationMatch=0)", directory)
        # A lost answer is no verdict: what is there afterwards tells.
        with suppress(StoreOutcomeUnknownError, StoreNotFoundError):
            await store.rename_file(one, other, identity=put.identity)
        if (await store.status(other)).identity != put.identity:
            raise _unsupported("does not keep the metadata of an object that is moved", directory)
        again = await store.put(one, b"again", exclusive=True)
        with suppress(StoreExistsError, StoreOutcomeUnknownError):
            await store.rename_file(one, other, identity=again.identity)
        if (await store.status(other)).identity != put.identity:
            raise _unsupported("lets a move replace what it was told not to replace (ifGenerationMatch=0)", directory)
    finally:
        for path in (one, other):
            with suppress(StoreError):
                await store.delete_file(path)


def no_move(path: StorePath) -> UnsupportedError:
    """The error of a service without moves."""
    return _unsupported("does not know how to move an object (moveTo)", path)


def _unsupported(what: str, path: StorePath) -> UnsupportedError:
    return UnsupportedError(
        f"this service {what}, so nothing keeps jobs from destroying each other's files",
        operation="probe",
        path=path,
        next_step="needed are moveTo and its preconditions, as Google Cloud Storage has them:"
        f" {page('stores/gcs.md#emulators')}",
    )

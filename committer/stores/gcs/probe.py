"""Whether a service keeps what a commit relies on: what a trial shows."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.gcs.errors import unsupported
from committer.stores.gcs.renames import Renames


async def probe(store: Store, renames: Renames, directory: StorePath) -> None:
    """See `Store.probe`: renames a file of its own, and tries every condition of a commit where it is not met.

    Raises:
        UnsupportedError: The service renames nothing, ignores a condition, or keeps no metadata.
    """
    nonce = current_runtime().nonce()
    # No name changes twice, but to go: the service allows one change of a name in about a second.
    one, other, third, fourth = (directory / f".probe-{nonce}-{number}" for number in range(1, 5))
    made = [one, other]
    try:
        put = await store.put(one, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(one, b"other", exclusive=True)
            raise unsupported("lets a put replace what it was told not to replace (ifGenerationMatch=0)", directory)
        # A lost answer is no verdict: what is there afterwards tells.
        with suppress(StoreOutcomeUnknownError, StoreNotFoundError):
            await store.rename_file(one, other, identity=put.identity)
        if (await store.status(other)).identity != put.identity:
            raise unsupported("does not keep the metadata of an object that is renamed", directory)
        made = [other, third, fourth]
        again = await store.put(third, b"again", exclusive=True)
        with suppress(StoreExistsError, StoreOutcomeUnknownError):
            await store.rename_file(third, other, identity=again.identity)
        if (await store.status(other)).identity != put.identity:
            raise unsupported("lets a rename replace what it was told not to replace (ifGenerationMatch=0)", directory)
        await renames.prove(third, fourth)
    finally:
        for path in made:
            with suppress(StoreError):
                await store.delete_file(path)

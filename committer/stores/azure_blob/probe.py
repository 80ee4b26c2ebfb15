"""Whether a container is one that a commit can rely on: what its account says of itself, and what a trial shows."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from committer.errors import StoreError, StoreExistsError, StorePreconditionError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.azure_blob.wire import BlobWire
from committer.stores.base import Store
from committer.stores.examination import Finding
from committer.stores.uploads import SupportsBlockLists

_STAMP: Final = "committer-probe"
_NO_ETAG: Final = "0x0"
_KIND: Final = "kind of account"
HIERARCHICAL: Final = "this storage account has a hierarchical namespace: its directories are real, and it renames them"
HIERARCHICAL_STEP: Final = "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


async def refuse_hierarchical(wire: BlobWire, directory: StorePath) -> None:
    """Asks what kind of account it is; where that is not allowed nothing is refused. One call.

    Raises:
        UnsupportedError: It has a hierarchical namespace.
    """
    told = await _told(wire, directory)
    if told.get("x-ms-is-hns-enabled", "").lower() == "true":
        raise UnsupportedError(HIERARCHICAL, operation="probe", path=directory, next_step=HIERARCHICAL_STEP)


async def findings_of(wire: BlobWire, directory: StorePath) -> list[Finding]:
    """What ``committer doctor`` shows of the account. One call."""
    told = await _told(wire, directory)
    kind, sku = told.get("x-ms-account-kind"), told.get("x-ms-sku-name")
    if kind is None:
        return [Finding(_KIND, "skipped", "the credentials may not ask for it")]
    if told.get("x-ms-is-hns-enabled", "").lower() == "true":
        return [Finding(_KIND, "failed", HIERARCHICAL, HIERARCHICAL_STEP)]
    return [Finding(_KIND, "ok", f"{kind}, {sku}; hierarchical namespace off")]


async def _told(wire: BlobWire, directory: StorePath) -> dict[str, str]:
    query = (("comp", "properties"), ("restype", "account"))
    answer = await wire.send("probe", "GET", directory, query, changes=False, at="")
    return {name.lower(): text for name, text in answer.headers.items()} if answer.status < 300 else {}


async def probe(store: Store, blocks: SupportsBlockLists, directory: StorePath) -> None:
    """Tries each condition on a file of its own, which is deleted in the end.

    Raises:
        UnsupportedError: A condition did not hold, or a stamp was not kept.
    """
    path = directory / f".probe-{current_runtime().nonce()}"
    try:
        first = await store.put(path, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(path, b"other", exclusive=True)
            raise _unsupported("lets a put replace what it was told not to replace (If-None-Match: *)", path)
        await blocks.put_block(path, "probe", b"stamped")
        with suppress(StoreExistsError):
            await blocks.put_block_list(path, ["probe"], stamp=_STAMP, exclusive=True)
            raise _unsupported("lets a list replace what it was told not to replace (If-None-Match: *)", path)
        with suppress(StorePreconditionError):
            await blocks.put_block_list(path, ["probe"], stamp=_STAMP, identity=_NO_ETAG)
            raise _unsupported("lets a list replace another file than it was told to (If-Match)", path)
        await blocks.put_block_list(path, ["probe"], stamp=_STAMP, identity=first.identity)
        found = await store.status(path)
        if (found.stamp, found.size) != (_STAMP, 7):
            raise _unsupported("does not keep the metadata that a list is put with", path)
    finally:
        with suppress(StoreError):
            await store.delete_file(path)


def _unsupported(what: str, path: StorePath) -> UnsupportedError:
    return UnsupportedError(
        f"this service {what}, so nothing keeps jobs from destroying each other's files",
        operation="probe",
        path=path.parent,
        next_step="write to an account of Azure's",
    )

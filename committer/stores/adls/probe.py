"""Whether an account is one that a commit can rely on: what it says of itself, and what a trial shows."""

from __future__ import annotations

from typing import Final

from committer.errors import StoreNotFoundError, UnsupportedError
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire
from committer.stores.azure.errors import code_of, error_of
from committer.stores.base import Store
from committer.stores.helpers import status_or_none
from committer.stores.rename_probe import probe_renames

FLAT: Final = "this storage account has no hierarchical namespace: its renames are copies and deletes, file by file"
FLAT_STEP: Final = (
    "write az://CONTAINER/PATH with the option account_name, or wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/PATH: "
    "there jobs have the committer block-list, which renames nothing"
)


async def probe(store: Store, wire: AdlsWire, directory: StorePath) -> None:
    """See `Store.probe`."""
    await _refuse_flat(wire, directory)
    if await status_or_none(store, directory) is None:
        # A put would make it up.
        raise StoreNotFoundError("the directory to probe is missing", operation="probe", path=directory)
    await probe_renames(store, directory, subject="this account", instead="write to an account of the service itself")


async def _refuse_flat(wire: AdlsWire, directory: StorePath) -> None:
    """Asks the filesystem what kind its account is; and where that is not allowed, as Hadoop does.

    (`AzureBlobFileSystemStore.getIsNamespaceEnabled`: on an account without hierarchical namespace, asking for an
    access control list is a bad request.)
    """
    answer = await wire.send("probe", "HEAD", directory, (("resource", "filesystem"),), changes=False, at="")
    said = answer.headers.get("x-ms-namespace-enabled", "").lower()
    flat = said == "false"
    if answer.status == 404:
        raise error_of(answer, "probe", directory, changes=False)
    if not said or answer.status >= 300:
        query = (("action", "getAccessControl"), ("upn", "false"))
        answer = await wire.send("probe", "HEAD", directory, query, changes=False)
        flat = answer.status == 400 and code_of(answer) in ("", "UnsupportedQueryParameter", "UnsupportedHeader")
    if flat:
        raise UnsupportedError(
            FLAT,
            operation="probe",
            path=directory,
            next_step=FLAT_STEP,
        )

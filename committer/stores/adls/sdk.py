"""Probe of an account, and findings about it from Azure's optional SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import aiohttp

from committer.errors import CommitterError, StoreNotFoundError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire
from committer.stores.azure.access import Access
from committer.stores.azure.errors import code_of, error_of
from committer.stores.base import Store
from committer.stores.examination import Finding
from committer.stores.helpers import status_or_none
from committer.stores.http import redact
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
        # Checked because a put would create it.
        raise StoreNotFoundError("the directory to probe is missing", operation="probe", path=directory)
    await probe_renames(store, directory, subject="this account", instead="write to an account of the service itself")


async def _refuse_flat(wire: AdlsWire, directory: StorePath) -> None:
    """Raises if the account has no hierarchical namespace.

    If the filesystem's properties may not be read, asks as Hadoop does: a flat account answers 400 to a request
    for access control (`AzureBlobFileSystemStore.getIsNamespaceEnabled`).
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


_KIND: Final = "kind of account"
_ACCESS_CONTROL: Final = "access control"
_SOFT_DELETE: Final = "blob soft delete"

_OPTIONS: Final = {
    "connection_timeout": 10,
    "read_timeout": 15,
    # The SDK's defaults would retry for minutes.
    "retry_total": 1,
    "initial_backoff": 1,
    "increment_base": 1,
    "random_jitter_range": 0,
}
_BOUND_S: Final = 30.0
_SHOWN_ENTRIES: Final = 6


class Sdk:
    """Client of Azure's SDK for one account; without a session the SDK makes its own."""

    def __init__(
        self, endpoint: str, blob_endpoint: str, container: str, access: Access, session: aiohttp.ClientSession | None
    ) -> None:
        self._endpoint = endpoint
        self._blob_endpoint = blob_endpoint
        self._container = container
        self._access = access
        self._session = session

    async def findings(self, directory: StorePath) -> list[Finding]:
        """See `SupportsExamination.findings`."""
        run_blocking = current_runtime().run_blocking
        kinds = await run_blocking(_import)
        if kinds is None:
            missing = "not asked for its kind, access control and soft delete: azure-storage-file-datalake is missing"
            return [Finding("the account", "skipped", missing, "pip install 'lake-committer[adls]'")]
        try:
            credential = await self._access.for_sdk()
        except CommitterError as error:
            return [Finding("the account", "skipped", f"not asked: {error.message}", error.next_step)]
        # In a thread: the SDK asks the operating system, by a process, for parts of its User-Agent.
        container_client, service_client = await run_blocking(lambda: self._clients(*kinds, credential))
        async with container_client as blobs, service_client as service:
            files = service.get_file_system_client(self._container)
            return list(
                await asyncio.gather(
                    _asked(_KIND, _kind(blobs)),
                    _asked(_ACCESS_CONTROL, _access_control(files, directory)),
                    _asked(_SOFT_DELETE, _soft_delete(service)),
                )
            )

    def _clients(self, container_kind: Any, service_kind: Any, transport: Any, credential: Any) -> tuple[Any, Any]:
        def options() -> dict[str, Any]:
            given = None if self._session is None else transport(session=self._session, session_owner=False)
            return {**_OPTIONS, "credential": credential, "transport": given}

        blobs = container_kind(self._blob_endpoint, self._container, **options())
        return blobs, service_kind(self._endpoint, **options())


def _import() -> tuple[Any, Any, Any] | None:
    try:
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.storage.blob.aio import ContainerClient
        from azure.storage.filedatalake.aio import DataLakeServiceClient
    except ImportError:
        return None
    return ContainerClient, DataLakeServiceClient, AioHttpTransport


async def _asked(name: str, question: Awaitable[Finding]) -> Finding:
    try:
        async with asyncio.timeout(_BOUND_S):
            return await question
    except TimeoutError:
        return Finding(name, "skipped", f"no answer within {_BOUND_S:.0f} s")
    except CommitterError as error:
        return Finding(name, "skipped", f"not asked: {error.message}", error.next_step)
    except Exception as error:
        # Only its kind and codes: the SDK's messages may hold secrets.
        code = getattr(error, "error_code", None)
        parts = [getattr(error, "status_code", None) or type(error).__name__, getattr(code, "value", code)]
        said = redact(" ".join(str(part) for part in parts if part))
        refused = getattr(error, "status_code", None) in (401, 403)
    end = "; a right that no commit needs is missing" if refused else ""
    return Finding(name, "skipped", f"the account does not say: {said}{end}")


async def _kind(blobs: Any) -> Finding:
    # Asked of the container: a container's signature is not valid for the account's URL.
    told = await blobs.get_account_information()
    words = f"{told['account_kind']}, {told['sku_name']}; hierarchical namespace"
    hierarchical = told.get("is_hns_enabled")
    if hierarchical is None:
        return Finding(_KIND, "ok", f"{words} not told")
    return Finding(_KIND, "ok", f"{words} on") if hierarchical else Finding(_KIND, "failed", FLAT, FLAT_STEP)


async def _soft_delete(service: Any) -> Finding:
    policy = (await service.get_service_properties()).get("delete_retention_policy")
    if policy is None or not policy.enabled:
        return Finding(_SOFT_DELETE, "ok", "off")
    return Finding(
        _SOFT_DELETE,
        "warning",
        f"on: deleted files of _temporary stay, and stay billable, for {policy.days} days",
        "count these bytes in, or set fewer days for the account that jobs write to",
    )


async def _access_control(files: Any, directory: StorePath) -> Finding:
    place, told = await _nearest(files, directory)
    entries = [entry for entry in str(told.get("acl") or "").split(",") if entry]
    default = [entry for entry in entries if entry.startswith("default:")]
    # Entries without a name (user::rwx) are in the permissions already.
    named = [entry for entry in entries if entry not in default and entry.split(":")[1:2] not in ([""], [])]
    where = "the destination" if place == directory else f"{place.path}, the nearest directory there is"
    found = f"{where}: owner {told.get('owner')}, group {told.get('group')}, {told.get('permissions')}"
    if named or default:
        found = f"{found}, {_some([*named, *default])}"
    if default:
        found += "; published files have what _temporary inherits of this default list, nothing of a partition's own"
        return Finding(_ACCESS_CONTROL, "warning", found)
    if named:
        found += "; without a default list, new files inherit none of these entries"
        step = f"give {place.path} a default list before the first job, if readers need these entries"
        return Finding(_ACCESS_CONTROL, "warning", found, step)
    return Finding(_ACCESS_CONTROL, "ok", found)


async def _nearest(files: Any, directory: StorePath) -> tuple[StorePath, Any]:
    from azure.core.exceptions import ResourceNotFoundError

    place = directory
    while True:
        try:
            return place, await files.get_directory_client(place.path).get_access_control()
        except ResourceNotFoundError:
            if place.path == "/":
                raise
        place = place.parent


def _some(entries: list[str]) -> str:
    more = len(entries) - _SHOWN_ENTRIES
    shown = " ".join(entries[:_SHOWN_ENTRIES])
    return f"{shown} and {more} more" if more > 0 else shown

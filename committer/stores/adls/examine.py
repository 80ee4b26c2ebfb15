"""Probe of an account, and findings about it for ``committer doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from committer.errors import CommitterError, StoreNotFoundError, UnsupportedError
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire
from committer.stores.azure.errors import code_of, error_of
from committer.stores.base import Store
from committer.stores.examination import Finding, probe_renames
from committer.stores.helpers import status_or_none
from committer.stores.http import Answer
from committer.stores.http_answers import parsed

FLAT: Final = "this storage account has no hierarchical namespace: its renames are copies and deletes, file by file"
FLAT_STEP: Final = (
    "write az://CONTAINER/PATH with the option account_name, or wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/PATH: "
    "there jobs have the committer block-list, which renames nothing"
)


_ACL_QUERY: Final = (("action", "getAccessControl"), ("upn", "false"))


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
        answer = await wire.send("probe", "HEAD", directory, _ACL_QUERY, changes=False)
        flat = answer.status == 400 and code_of(answer) in ("", "UnsupportedQueryParameter", "UnsupportedHeader")
    if flat:
        raise UnsupportedError(FLAT, operation="probe", path=directory, next_step=FLAT_STEP)


_BOUND_S: Final = 30.0
_SHOWN_ENTRIES: Final = 6


async def examine(wire: AdlsWire, service: AdlsWire, directory: StorePath) -> list[Finding]:
    """See `SupportsExamination.findings`; three calls, and one for each missing directory above the destination.

    `service` sends requests to the account's blob service.
    """

    def ask(sender: AdlsWire, query: tuple[tuple[str, str], ...]) -> Awaitable[Answer]:
        return sender.send("findings", "GET", directory, query, blob=True, changes=False, at="")

    # The kind is asked of the container: a container's signature is not valid for the account's URL.
    found = await asyncio.gather(
        _asked("kind of account", ask(wire, (("comp", "properties"), ("restype", "account"))), _kind),
        _access_control(wire, directory),
        _asked(
            "blob soft delete",
            ask(service, (("comp", "properties"), ("restype", "service"))),
            partial(_soft_delete, directory),
        ),
    )
    return list(found)


async def _asked(name: str, question: Awaitable[Answer], read: Callable[[str, Answer], Finding]) -> Finding:
    try:
        async with asyncio.timeout(_BOUND_S):
            answer = await question
            if answer.status < 300:
                return read(name, answer)
    except TimeoutError:
        return Finding(name, "skipped", f"no answer within {_BOUND_S:.0f} s")
    except CommitterError as error:
        return Finding(name, "skipped", f"not asked: {error.message}", error.next_step)
    end = "; a right that no commit needs is missing" if answer.status in (401, 403) else ""
    return Finding(name, "skipped", f"the account does not say: {answer.status} {code_of(answer)}".rstrip() + end)


def _kind(name: str, answer: Answer) -> Finding:
    told = answer.headers
    words = f"{told.get('x-ms-account-kind')}, {told.get('x-ms-sku-name')}; hierarchical namespace"
    hierarchical = told.get("x-ms-is-hns-enabled", "").lower()
    if not hierarchical:
        return Finding(name, "ok", f"{words} not told")
    if hierarchical == "true":
        return Finding(name, "ok", f"{words} on")
    return Finding(name, "failed", FLAT, FLAT_STEP)


def _soft_delete(directory: StorePath, name: str, answer: Answer) -> Finding:
    policy = parsed(answer.body, "StorageServiceProperties", "findings", directory).find("DeleteRetentionPolicy")
    if policy is None or policy.findtext("Enabled") != "true":
        return Finding(name, "ok", "off")
    return Finding(
        name,
        "warning",
        f"on: deleted files of _temporary stay, and stay billable, for {policy.findtext('Days')} days",
        "count these bytes in, or set fewer days for the account that jobs write to",
    )


async def _access_control(wire: AdlsWire, directory: StorePath) -> Finding:
    place = directory

    async def ask_nearest() -> Answer:
        nonlocal place
        while True:
            answer = await wire.send("findings", "HEAD", place, _ACL_QUERY, changes=False)
            if answer.status != 404 or place.path == "/":
                return answer
            place = place.parent

    def read(name: str, answer: Answer) -> Finding:
        where = "the destination" if place == directory else f"{place.path}, the nearest directory there is"
        return _access_finding(name, where, place, answer.headers)

    return await _asked("access control", ask_nearest(), read)


def _access_finding(name: str, where: str, place: StorePath, told: Mapping[str, str]) -> Finding:
    entries = [entry for entry in told.get("x-ms-acl", "").split(",") if entry]
    default = [entry for entry in entries if entry.startswith("default:")]
    # Entries without a name (user::rwx) are in the permissions already.
    named = [entry for entry in entries if entry not in default and entry.split(":")[1:2] not in ([""], [])]
    owner, group, permissions = (told.get(f"x-ms-{one}") for one in ("owner", "group", "permissions"))
    found = f"{where}: owner {owner}, group {group}, {permissions}"
    if named or default:
        found = f"{found}, {_some([*named, *default])}"
    if default:
        found += "; published files have what _temporary inherits of this default list, nothing of a partition's own"
        return Finding(name, "warning", found)
    if named:
        found += "; without a default list, new files inherit none of these entries"
        step = f"give {place.path} a default list before the first job, if readers need these entries"
        return Finding(name, "warning", found, step)
    return Finding(name, "ok", found)


def _some(entries: list[str]) -> str:
    more = len(entries) - _SHOWN_ENTRIES
    shown = " ".join(entries[:_SHOWN_ENTRIES])
    return f"{shown} and {more} more" if more > 0 else shown

"""Findings about a bucket for ``committer doctor``, and the probe of its renames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from committer.errors import CommitterError, StoreError, StoreExistsError, StoreNotFoundError, StoreOutcomeUnknownError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.stores.base import Store
from committer.stores.examination import Finding
from committer.stores.gcs.changes import Renames, no_moves
from committer.stores.gcs.errors import RIGHTS, unsupported
from committer.stores.gcs.wire import GcsWire
from committer.stores.helpers import status_or_none
from committer.stores.http_answers import unreadable

_BOUND_S: Final = 10.0
_NEEDED: Final = (
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.move",
)


class _Period(msgspec.Struct, frozen=True):
    retained_s: int = msgspec.field(default=0, name="retentionPeriod")
    deleted_s: int = msgspec.field(default=0, name="retentionDurationSeconds")


class _Switch(msgspec.Struct, frozen=True):
    enabled: bool = False


class _Told(msgspec.Struct, frozen=True):
    namespace: _Switch | None = msgspec.field(default=None, name="hierarchicalNamespace")
    retention: _Period | None = msgspec.field(default=None, name="retentionPolicy")
    soft_delete: _Period | None = msgspec.field(default=None, name="softDeletePolicy")
    versioning: _Switch | None = None
    permissions: list[str] = []


# The API writes 64-bit numbers as strings.
_TOLD: Final = msgspec.json.Decoder(_Told, strict=False)


async def examine(wire: GcsWire, renames: Renames, directory: StorePath) -> list[Finding]:
    """See `SupportsExamination.findings`; four calls."""
    found = await asyncio.gather(
        _asked("renames", lambda: _moves(renames, directory)),
        _asked("namespace", lambda: _layout(wire, directory)),
        _asked("kept objects", lambda: _kept(wire, directory)),
        _asked("permissions", lambda: _permissions(wire, directory)),
    )
    return list(found)


async def _asked(name: str, question: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        async with asyncio.timeout(_BOUND_S):
            return await question()
    except TimeoutError:
        return Finding(name, "skipped", f"no answer within {_BOUND_S:.0f} s")
    except CommitterError as error:
        return Finding(name, "skipped", f"not told: {error.message}", error.next_step)


async def _told(wire: GcsWire, directory: StorePath, below: str, query: tuple[tuple[str, str], ...] = ()) -> _Told:
    answer = await wire.done("findings", "GET", directory, f"{wire.bucket_url}{below}", query, changes=False)
    try:
        return _TOLD.decode(answer.body)
    except UNDECODABLE:
        raise unreadable("findings", directory) from None


async def _moves(renames: Renames, directory: StorePath) -> Finding:
    if await renames.has_moves(directory):
        return Finding("renames", "ok", "a file is moved in one step (moveTo)")
    refused = no_moves(directory)
    return Finding("renames", "failed", refused.message, refused.next_step)


async def _layout(wire: GcsWire, directory: StorePath) -> Finding:
    told = await _told(wire, directory, "/storageLayout")
    if told.namespace is not None and told.namespace.enabled:
        return Finding("namespace", "ok", "hierarchical; files are moved one by one, as in a flat bucket")
    return Finding("namespace", "ok", "flat")


async def _kept(wire: GcsWire, directory: StorePath) -> Finding:
    told = await _told(wire, directory, "", (("fields", "retentionPolicy,softDeletePolicy,versioning"),))
    if told.retention is not None and told.retention.retained_s:
        return Finding(
            "kept objects",
            "failed",
            f"a retention policy of {told.retention.retained_s} s keeps objects from being moved and deleted",
            "write to a bucket without a retention policy",
        )
    days = told.soft_delete.deleted_s / 86400 if told.soft_delete is not None else 0
    versions = told.versioning is not None and told.versioning.enabled
    if not days and not versions:
        return Finding("kept objects", "ok", "deleted objects are gone at once")
    said = [f"soft delete keeps deleted objects for {days:g} days"] if days else []
    if versions:
        said.append("versions of objects are kept")
    return Finding(
        "kept objects",
        "warning",
        f"{' and '.join(said)}, records of jobs among them, and they are paid for",
        "set fewer days, or a lifecycle rule, for the bucket that jobs write to",
    )


async def _permissions(wire: GcsWire, directory: StorePath) -> Finding:
    asked = tuple(("permissions", one) for one in _NEEDED)
    told = await _told(wire, directory, "/iam/testPermissions", asked)
    missing = [one for one in _NEEDED if one not in told.permissions]
    if missing:
        return Finding("permissions", "failed", f"missing: {', '.join(missing)}", RIGHTS)
    return Finding("permissions", "ok", "objects may be created, read, listed, moved and deleted")


async def probe(store: Store, renames: Renames, directory: StorePath) -> None:
    """Renames a probe file, and tries every condition of a commit with a false one; see `Store.probe`.

    Raises:
        UnsupportedError: The service has no renames, ignores a condition, or keeps no metadata.
    """
    nonce = current_runtime().nonce()
    # No name changes twice, except by its delete: the service allows one change of a name in about a second.
    one, other, third, fourth = (directory / f".probe-{nonce}-{number}" for number in range(1, 5))
    made = [one, other]
    try:
        put = await store.put(one, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(one, b"other", exclusive=True)
            raise unsupported("lets a put replace what it was told not to replace (ifGenerationMatch=0)", directory)
        lost: StoreOutcomeUnknownError | None = None
        try:
            await store.rename_file(one, other, identity=put.identity)
        except StoreOutcomeUnknownError as error:
            lost = error
        except StoreNotFoundError:
            pass  # A service may answer 404 to a call that it does not know.
        moved = await status_or_none(store, other)
        if moved is None:
            raise lost or no_moves(directory)
        if moved.identity != put.identity:
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

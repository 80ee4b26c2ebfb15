"""What the service says of a bucket: how it renames, what it keeps of deleted objects, what the caller may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.examination import Finding
from committer.stores.gcs.errors import RIGHTS
from committer.stores.gcs.renames import Renames
from committer.stores.gcs.wire import GcsWire
from committer.undecodable import UNDECODABLE

_BOUND_S: Final = 10.0
_NEEDED: Final = (
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.move",
)


async def examine(wire: GcsWire, renames: Renames, directory: StorePath) -> list[Finding]:
    """See `SupportsExamination.findings`; four calls."""
    return list(
        await asyncio.gather(
            _asked("renames", lambda: _moves(renames, directory)),
            _asked("namespace", lambda: _layout(wire, directory)),
            _asked("kept objects", lambda: _kept(wire, directory)),
            _asked("permissions", lambda: _permissions(wire, directory)),
        )
    )


async def _asked(name: str, question: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        async with asyncio.timeout(_BOUND_S):
            return await question()
    except TimeoutError:
        return Finding(name, "skipped", f"no answer within {_BOUND_S:.0f} s")
    except CommitterError as error:
        return Finding(name, "skipped", f"not told: {error.message}")


async def _told(wire: GcsWire, directory: StorePath, below: str, query: tuple[tuple[str, str], ...] = ()) -> Any:
    answer = await wire.done("findings", "GET", directory, f"{wire.bucket_url}{below}", query, changes=False)
    try:
        told = msgspec.json.decode(answer.body)
    except UNDECODABLE:
        told = None
    return told if isinstance(told, dict) else {}


async def _moves(renames: Renames, directory: StorePath) -> Finding:
    if await renames.has_moves(directory):
        return Finding("renames", "ok", "a file is moved in one step (moveTo)")
    return Finding(
        "renames",
        "warning",
        "the service knows no moveTo: a file is copied, then deleted, and for a moment stands under both names",
        "Google Cloud Storage itself moves files; elsewhere expect three calls a file, and time for its bytes",
    )


async def _layout(wire: GcsWire, directory: StorePath) -> Finding:
    told = await _told(wire, directory, "/storageLayout")
    if (told.get("hierarchicalNamespace") or {}).get("enabled"):
        return Finding("namespace", "ok", "hierarchical; files are moved one by one, as in a flat bucket")
    return Finding("namespace", "ok", "flat")


async def _kept(wire: GcsWire, directory: StorePath) -> Finding:
    told = await _told(wire, directory, "", (("fields", "retentionPolicy,softDeletePolicy,versioning"),))
    seconds = int((told.get("retentionPolicy") or {}).get("retentionPeriod", 0))
    if seconds:
        return Finding(
            "kept objects",
            "failed",
            f"a retention policy of {seconds} s keeps objects from being moved and deleted",
            "write to a bucket without a retention policy",
        )
    days = int((told.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0)) / 86400
    versions = bool((told.get("versioning") or {}).get("enabled"))
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
    missing = sorted(set(_NEEDED) - set(told.get("permissions") or ()))
    if missing:
        return Finding("permissions", "failed", f"missing: {', '.join(missing)}", RIGHTS)
    return Finding("permissions", "ok", "objects may be created, read, listed, moved and deleted")

"""Probe of the conditions that a commit needs of a service with S3's protocol."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Literal, NamedTuple

from committer.errors import CommitterError, StoreError, StoreExistsError, StorePreconditionError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.flow.together import both
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.s3.deletes import Deletes
from committer.stores.s3.errors import SERVICES, error_of
from committer.stores.s3.wire import S3Wire
from committer.stores.uploads import UPLOADS

_STAMP: Final = "committer-probe"
_NO_ETAG: Final = '"00000000000000000000000000000000"'


class Probed(NamedTuple):
    """Abilities that a job can do without, as tried: conditions of a delete, and of a delete of many files."""

    spares_one: bool
    spares_of_many: bool


async def probe(store: Store, wire: S3Wire, directory: StorePath) -> Probed:
    """Tries each condition on a probe file and deletes it; raises `UnsupportedError` for what every job needs."""
    path = directory / f".probe-{current_runtime().nonce()}"
    try:
        await store.put(path, b"probe", exclusive=True)
        await _refuses(store, path)
        # The first changes only the probe file, the second only lists uploads.
        spares_of_many, _listed = await both(_spares_of_many(store, wire, path), _lists(store, path))
        if not spares_of_many:
            # The call may have deleted it, and the next trials need an existing file.
            await store.put(path, b"probe")
        await _completes(store, path)
        can = store.capabilities
        if can.conditional_replace and not await _spares(wire, "PUT", path):
            raise _unsupported("has no put that replaces one file and no other (If-Match)", path)
        return Probed(can.conditional_delete and await _spares(wire, "DELETE", path), spares_of_many)
    finally:
        with suppress(StoreError):
            await wire.done("probe", "DELETE", path)


async def _spares(wire: S3Wire, method: Literal["PUT", "DELETE"], path: StorePath) -> bool:
    """Returns True if the service refuses a call whose condition is false."""
    answer = await wire.send("probe", method, path, (), {"if-match": _NO_ETAG})
    if answer.status in (401, 403):
        raise error_of(answer, "probe", path)
    return answer.status == 412


async def _spares_of_many(store: Store, wire: S3Wire, path: StorePath) -> bool:
    """Returns True if a call for many files spares the file, whose condition is false, and says so.

    moto 5.2 ignores these conditions. No job needs them: any other failure counts as False, and a service that
    ignored them once is not asked again.
    """
    deletes = Deletes(wire)
    if deletes.ignores_conditions or not store.capabilities.conditional_delete:
        return False
    try:
        refused = await deletes.delete_at_once({path: _NO_ETAG.strip('"')})
    except CommitterError:
        return False
    if path not in refused:
        deletes.saw_condition_ignored()
    return isinstance(refused.get(path), StorePreconditionError)


async def _refuses(store: Store, path: StorePath) -> None:
    try:
        await store.put(path, b"other", exclusive=True)
    except StoreExistsError:
        return
    raise _unsupported("lets a put replace what it was told not to replace (If-None-Match: *)", path)


async def _lists(store: Store, path: StorePath) -> None:
    uploads = UPLOADS.required(store, "probe", path)
    try:
        # A service may list a pending upload late; one without the call refuses it.
        _listed = [one async for one in uploads.list_uploads(path.parent)]
    except UnsupportedError:
        raise _unsupported("does not list the uploads that are pending", path) from None


async def _completes(store: Store, path: StorePath) -> None:
    """Completes an upload over the file: first on a false condition, then without one, which must keep the stamp."""
    uploads = UPLOADS.required(store, "probe", path)
    upload_id = await uploads.create_upload(path, stamp=_STAMP)
    try:
        part = await uploads.put_part(path, upload_id, 1, b"stamped")
        try:
            await uploads.complete_upload(path, upload_id, [part], exclusive=True)
        except StoreExistsError:
            await uploads.complete_upload(path, upload_id, [part])
        else:
            raise _unsupported("lets a completion replace what it was told not to replace (If-None-Match: *)", path)
        found = await store.status(path)
        if (found.stamp, found.size) != (_STAMP, 7):
            raise _unsupported("does not keep the metadata that an upload was created with", path)
    except BaseException:
        with suppress(StoreError):
            await uploads.abort_upload(path, upload_id)
        raise


def _unsupported(what: str, path: StorePath) -> UnsupportedError:
    return UnsupportedError(
        f"this service {what}, so no job is safe there", operation="probe", path=path.parent, next_step=SERVICES
    )

"""Whether a service that speaks like S3 keeps what a commit relies on: what a trial shows."""

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
    """What a job can do without, and was tried.

    Attributes:
        spares_one: Whether a delete on a condition spares what does not meet it.
        spares_of_many: Whether a call that deletes many files spares one that does not meet its condition.
    """

    spares_one: bool
    spares_of_many: bool


async def probe(store: Store, wire: S3Wire, directory: StorePath) -> Probed:
    """Tries each condition on a file of its own, which is deleted in the end.

    Raises:
        UnsupportedError: A put or a completion replaced what it was told to spare, the service knows no put on the
            condition of an etag, a stamp was not kept, or it does not list uploads.
    """
    path = directory / f".probe-{current_runtime().nonce()}"
    try:
        await store.put(path, b"probe", exclusive=True)
        await _refuses(store, path)
        # The one changes nothing but the file, the other looks at uploads only.
        spares_of_many, _listed = await both(_spares_of_many(store, wire, path), _lists(store, path))
        if not spares_of_many:
            # It may have been deleted. What is tried next is what happens to a file that stands.
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
    """Whether a call is refused whose condition the file does not meet."""
    answer = await wire.send("probe", method, path, (), {"if-match": _NO_ETAG})
    if answer.status in (401, 403):
        raise error_of(answer, "probe", path)
    return answer.status == 412


async def _spares_of_many(store: Store, wire: S3Wire, path: StorePath) -> bool:
    """Whether a call for many files refuses to delete the file, whose condition it does not meet, and says so.

    Some services know the call and not its conditions (moto 5.2). No job needs it: whatever else goes wrong with the
    call counts as a no. One that was seen to ignore them once is not asked again.
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
        # What is pending a service may show late; one that lists nothing refuses.
        _listed = [one async for one in uploads.list_uploads(path.parent)]
    except UnsupportedError:
        raise _unsupported("does not list the uploads that are pending", path) from None


async def _completes(store: Store, path: StorePath) -> None:
    """Completes an upload over the file: refused where that is asked for, with its stamp where it is not."""
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
        f"this service {what}, so no job is safe there",
        operation="probe",
        path=path.parent,
        next_step=SERVICES,
    )

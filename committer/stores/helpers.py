"""Functions on top of the store contract, for any store."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    RecordError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.options.storage import refused
from committer.options.values import shown_name
from committer.paths import StorePath
from committer.stores.abilities import CONDITIONAL_DELETE, SYNC
from committer.stores.base import FileStatus, Store
from committer.stores.uploads import BLOCK_LISTS, UPLOADS, UploadPart

_COPIED_BYTES: Final = 1 << 30
_SMALL_BYTES: Final = 1 << 20
_TRIES: Final = 5
_WAIT_S: Final = 0.1


def bytes_of(data: object) -> bytes | bytearray | memoryview:
    """Returns written data as a buffer whose length is its number of bytes; raises `TypeError` for other data."""
    if isinstance(data, bytes | bytearray):
        return data
    try:
        # The len() of an array of numbers, or of a view of one, is not its number of bytes.
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError as error:
        if isinstance(data, memoryview):
            raise TypeError("a file takes a view of one contiguous piece of memory: give view.tobytes()") from None
        how = "encode the text first: text.encode()" if isinstance(data, str) else "give bytes or another buffer"
        raise TypeError(f"a file takes bytes, not a {type(data).__name__}: {how} ({error})") from None


def unusable_writer(
    path: StorePath, operation: str, *, failed: bool, next_step: str = "open another file, under another name"
) -> TaskError:
    """Returns the error of a call to a writer after a failed write, or else after its end."""
    what = "an earlier write failed" if failed else "it was closed or aborted"
    return TaskError(f"a file cannot be written any more: {what}", operation=operation, path=path, next_step=next_step)


async def walk(store: Store, directory: StorePath) -> AsyncIterator[FileStatus]:
    """Iterates over everything below `directory`, each directory before its content. One listing per directory.

    Skips directories that vanish meanwhile, but not `directory` itself, and does not follow links. One listing at a
    time: for large or distant trees list with several workers.
    """
    pending = [directory]
    while pending:
        current = pending.pop()
        try:
            async for status in store.list(current):
                if status.is_directory and not status.is_link:
                    pending.append(status.path)
                yield status
        except StoreNotFoundError:
            if current == directory:
                raise


async def status_or_none(store: Store, path: StorePath) -> FileStatus | None:
    """Returns the status of a path, None if it does not exist. One call."""
    try:
        return await store.status(path)
    except StoreNotFoundError:
        return None


async def exists(store: Store, path: StorePath) -> bool:
    """Returns whether `path` exists. One call."""
    return await status_or_none(store, path) is not None


CORRECT_THE_PATH: Final = "correct the path"
"""Start of the advice for a path where no job can be, whatever its id."""


async def check_destination(store: Store, destination: StorePath, operation: str) -> None:
    """Refuses a missing destination, a broken link or a file by its error; one listing, none without directories."""
    if not store.capabilities.directories:
        return
    try:
        async for _child in store.list(destination):
            return
    except StoreNotADirectoryError as error:
        raise StoreNotADirectoryError(
            "a file exists there, and a destination is a directory",
            operation=operation,
            path=destination,
            next_step=CORRECT_THE_PATH,
        ) from error
    except StoreNotFoundError as error:
        # A store gives a next step if it knows the cause, such as a broken link on the way.
        why = f": {error.message.partition(': ')[2]}" if error.next_step else ""
        step = error.next_step or "a job makes its destination when it is set up"
        raise DestinationNotFoundError(
            f"the destination does not exist{why}",
            operation=operation,
            path=destination,
            next_step=f"{CORRECT_THE_PATH}; {step}",
        ) from error


async def children_of(store: Store, directory: StorePath) -> list[FileStatus]:
    """Returns the children of a directory; none if it does not exist. One listing."""
    try:
        return [child async for child in store.list(directory)]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []


async def create_exclusively(
    store: Store,
    path: StorePath,
    data: bytes,
    *,
    temporary: StorePath | None = None,
    durable: bool = False,
    limit: int = _SMALL_BYTES,
) -> bytes:
    """Creates a file that only one of many writers may create, and returns its content: `data`, or the winner's.

    After a lost response it reads the file, so `data` must differ between writers: one that finds its own bytes has
    won. Reads at most `limit` bytes of a winner. One call if it wins, two if it loses or the response was lost; then
    one more with `durable`, since the file that was read may not be on the disk yet.

    Raises:
        StoreNotFoundError: The parent does not exist, or the winner's file was deleted before it could be read.
        StoreOutcomeUnknownError: Responses were lost and the file may exist or not; or, with `durable`, it exists
            but may not survive a power loss.
        RecordError: The winner's content is too long.
    """
    lost: StoreOutcomeUnknownError | None = None
    error: CommitterError | None = None
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                await store.put(path, data, exclusive=True, temporary=temporary, durable=durable)
                return data
            except StoreNotFoundError:
                raise
            except CommitterError as caught:
                error = caught
            except MemoryError as caught:
                error = _out_of_memory(caught, operation="put", path=path)
            # A delayed request can arrive later, but then it meets the file of the next one, or the other way round.
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            elif lost is None and not isinstance(error, StoreExistsError):
                raise error
            try:
                found = await store.read(path, limit=limit)
                if durable:
                    await SYNC.required(store, "sync", path.parent).sync(path.parent, kind="directory")
                return found
            except StoreNotFoundError:
                if isinstance(error, StoreExistsError):
                    raise
                if not (isinstance(error, StoreOutcomeUnknownError) and tries_left):
                    break
            except (StoreError, ConfigurationError) as hidden:
                if lost is None:
                    raise
                raise unseen(lost, hidden, operation="put", path=path) from lost
            except MemoryError as caught:
                broken = _out_of_memory(caught, operation="read", path=path)
                raise unseen(lost or error, broken, operation="put", path=path) from caught
        assert lost is not None  # noqa: S101
        raise lost
    finally:
        # As in `retry`: an error that its own frame refers to waits for the cycle collector.
        error = lost = None


async def move_file(
    store: Store,
    source: StorePath,
    destination: StorePath,
    *,
    replace: bool = False,
    identity: str | None = None,
    by_name: bool = False,
) -> None:
    """Moves a small file, such as a record: by a rename, else by a copy and a conditional delete. One call, or five.

    The copy exists before its source is deleted. If the process dies in between, both names remain; a driver that
    repeats the move finds the copy and deletes the source. Only the copied file is deleted, decided by the store;
    with `by_name` and no conditional delete, also a file that another job put there meanwhile.

    Raises:
        StoreNotFoundError: The source does not exist.
        StoreExistsError: A file of other content exists at the destination and `replace` is False.
        StorePreconditionError: The source is another file than `identity`, or became one meanwhile and stays.
        UnsupportedError: The store can do neither.
    """
    if store.capabilities.atomic_file_rename:
        await store.rename_file(source, destination, replace=replace, identity=identity)
        return
    if CONDITIONAL_DELETE.of(store) is None and not by_name:
        raise UnsupportedError(
            "the store neither renames nor deletes on a condition", operation="move_file", path=source
        )
    before = await store.status(source)
    data = await store.read(source, limit=_COPIED_BYTES)
    after = await store.status(source)
    found = before.identity
    if found is None or found != after.identity or identity not in (None, found):
        raise StorePreconditionError("the source is another file", operation="move_file", path=source)
    if replace:
        await store.put(destination, data)
    elif await create_exclusively(store, destination, data, limit=_COPIED_BYTES) != data:
        raise StoreExistsError("something exists there already", operation="move_file", path=destination)
    await delete_seen(store, source, identity=found)


async def delete_seen(store: Store, path: StorePath, *, identity: str) -> bool:
    """Deletes a file of that identity, else raises `StorePreconditionError`; returns whether it existed.

    Without conditional deletes (`Capabilities.deletes_by_name`): looks first, then deletes by name.
    """
    able = CONDITIONAL_DELETE.of(store)
    if able is not None:
        return await able.delete_file_if(path, identity=identity)
    found = await status_or_none(store, path)
    if found is not None and found.identity != identity:
        raise StorePreconditionError("another file is there", operation="delete_file", path=path)
    return found is not None and await store.delete_file(path)


def too_long(path: StorePath, limit: int) -> RecordError:
    """Returns the error for a file that is longer than its reader allows."""
    return RecordError(f"a file is longer than the {limit} bytes it may have", operation="read", path=path)


def _out_of_memory(error: MemoryError, *, operation: str, path: StorePath) -> StoreOutcomeUnknownError:
    return StoreOutcomeUnknownError("the process ran out of memory", operation=operation, path=path, causes=[error])


def unseen(
    error: CommitterError, hidden: CommitterError, *, operation: str, path: StorePath
) -> StoreOutcomeUnknownError:
    """Returns the error of a call whose outcome is unknown because the look after it failed, too."""
    return StoreOutcomeUnknownError(
        f"{error.message}; looking failed: {hidden.message}",
        operation=operation,
        path=path,
        next_step=LOOK_BEFORE,
        causes=(error, hidden),
    )


async def finish_upload(
    store: Store,
    path: StorePath,
    upload_id: str,
    parts: Sequence[UploadPart],
    *,
    stamp: str,
    size: int,
    identity: str | None = None,
    exclusive: bool = False,
) -> str | None:
    """Completes an upload and returns the file's identity; if the outcome is unclear, stamp and length tell it.

    It is unclear after a lost response, if the upload does not exist any more (this request or an earlier one may
    have completed it), and if an exclusive completion meets a file (it may be the caller's own). After a lost
    response the request is repeated only if the file does not exist and the upload still pends: whichever request
    arrives first makes the same file, and the other finds no upload. Any other refusal of the repetition says
    nothing about the first request, so it looks then, too. Another engine's upload has no stamp: the identity is
    compared, if known.

    One call; two or three with a look; as many for each further try, of five.

    Raises:
        StoreOutcomeUnknownError: A response was lost and the file does not exist: it may appear yet, or was replaced
            or deleted.
        StoreUploadNotFoundError: Upload and file do not exist: it was aborted, or completed before and its file
            replaced or deleted.
        StoreExistsError: `exclusive` and another file exists.
    """
    uploads = UPLOADS.required(store, "complete_upload", path)
    lost: StoreError | None = None
    error: CommitterError | None = None
    tries = _TRIES
    try:
        while True:
            try:
                return await uploads.complete_upload(path, upload_id, parts, exclusive=exclusive)
            except CommitterError as caught:
                error = caught
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            tells = isinstance(error, StoreUploadNotFoundError | StoreExistsError)
            # After a lost response, no other refusal of this request tells the outcome of that one.
            if lost is None and not tells:
                raise error
            pends = False
            try:
                found = await status_or_none(store, path)
                if not (tells or _is_meant(found, stamp, size, identity)):
                    pends = await is_pending(store, path, upload_id)
                    # It may have been completed between the two looks.
                    found = found if pends else await status_or_none(store, path)
            except CommitterError as hidden:
                raise unseen(error, hidden, operation="complete_upload", path=path) from error
            if found is not None and _is_meant(found, stamp, size, identity):
                return found.identity
            tries -= 1
            if not (pends and tries):
                raise error if isinstance(error, StoreExistsError) else lost or error
            await current_runtime().sleep(_WAIT_S)
    finally:
        # As in `retry`: breaks the cycle of an error and this frame.
        error = lost = None


async def is_pending(store: Store, path: StorePath, upload_id: str) -> bool:
    """Returns whether an upload was neither completed nor aborted. One call."""
    uploads = UPLOADS.required(store, "list_parts", path)
    try:
        async for _part in uploads.list_parts(path, upload_id):
            break
    except StoreUploadNotFoundError:
        return False
    return True


async def end_upload(store: Store, path: StorePath, upload_id: str) -> bool:
    """Aborts an upload until gone, and returns True if it existed: parts under way can outlive the first abort.

    Two calls, and two for each further try, of five. Raises `StoreConflictError` if parts keep arriving, because its
    writer is still at work.
    """
    uploads = UPLOADS.required(store, "abort_upload", path)
    there = await uploads.abort_upload(path, upload_id)
    for tries_left in reversed(range(_TRIES)):
        if not await is_pending(store, path, upload_id):
            return there
        if tries_left:
            await current_runtime().sleep(_WAIT_S)
            await uploads.abort_upload(path, upload_id)
    raise StoreConflictError("parts keep arriving: its writer is still at work", operation="abort_upload", path=path)


def _is_meant(found: FileStatus | None, stamp: str, size: int, identity: str | None) -> bool:
    if found is None or found.size != size:
        return False
    return found.stamp == stamp if stamp else identity is not None and found.identity == identity


async def finish_block_list(
    store: Store,
    path: StorePath,
    block_ids: Sequence[str],
    *,
    stamp: str,
    size: int,
    exclusive: bool = False,
    identity: str | None = None,
) -> str | None:
    """Commits a list of blocks and returns the file's identity; if the outcome is unclear, stamp and length tell it.

    It is unclear after a lost response, if a block does not exist (this request or an earlier one may have used it
    up), and if another file exists (it may be the caller's own). If no file is found after a lost response, the list
    is sent again on the same condition (`exclusive` or `identity`; one is required): whichever request arrives first
    makes the same file, and the other finds no blocks, or the file.

    One call; two with a look; as many for each further try, of five.

    Raises:
        StoreOutcomeUnknownError: A response was lost and the file does not exist: it may appear yet, or was replaced
            or deleted.
        StorePartsError: A block and the file do not exist: the blocks were dropped, or used up before this call.
        StoreExistsError: `exclusive` and another file exists.
        StorePreconditionError: No file of that identity exists.
    """
    blocks = BLOCK_LISTS.required(store, "put_block_list", path)
    lost: StoreOutcomeUnknownError | None = None
    error: CommitterError | None = None
    tries = _TRIES
    try:
        while True:
            try:
                return await blocks.put_block_list(path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity)
            except CommitterError as caught:
                error = caught
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            tells = isinstance(error, StorePartsError | StoreExistsError | StorePreconditionError)
            if lost is None and not tells:
                raise error
            try:
                found = await status_or_none(store, path)
            except CommitterError as hidden:
                raise unseen(error, hidden, operation="put_block_list", path=path) from error
            if found is not None and not found.is_directory and (found.stamp, found.size) == (stamp, size):
                return found.identity
            tries -= 1
            if tells or not tries:
                raise error if lost is None or isinstance(error, StoreExistsError) else lost
            await current_runtime().sleep(_WAIT_S)
    finally:
        # As in `retry`: breaks the cycle of an error and this frame.
        error = lost = None


async def blocks_wait(store: Store, path: StorePath, block_ids: Collection[str]) -> bool:
    """Returns whether all these blocks wait under a name. One call; none without blocks."""
    if not block_ids:
        return True
    waiting = await BLOCK_LISTS.required(store, "list_uncommitted_blocks", path).list_uncommitted_blocks(path)
    return {block.block_id for block in waiting}.issuperset(block_ids)


def check_options(options: Mapping[str, object], *, known: Iterable[str], scheme: str) -> None:
    """Refuses unknown storage options by `ConfigurationError`; ``http_session`` is always known."""
    allowed = sorted({*known, "http_session"})
    for key in options:
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(allowed)}"
            raise refused(f"the {scheme} store knows no option {shown_name(key)}", hint)

"""What every store can do because of what the contract asks of it."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, NamedTuple

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.options.values import shown_name
from committer.paths import StorePath
from committer.stores.abilities import METADATA, SYNC
from committer.stores.base import FileStatus, Store
from committer.stores.conditions import CONDITIONAL_DELETE

_COPIED_BYTES: Final = 1 << 30
_SMALL_BYTES: Final = 1 << 20
_TRIES: Final = 5
_WAIT_S: Final = 0.1


def bytes_of(data: object) -> bytes | bytearray | memoryview:
    """What a caller wants written, in a form whose length is its number of bytes.

    Raises:
        TypeError: It is no buffer, or not one contiguous piece of memory.
    """
    if isinstance(data, bytes | bytearray):
        return data
    try:
        # Stores count with len, which of an array of numbers, or of a view of one, is not the number of its bytes.
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError as error:
        if isinstance(data, memoryview):
            raise TypeError("a file takes a view of one contiguous piece of memory: give view.tobytes()") from None
        how = "encode the text first: text.encode()" if isinstance(data, str) else "give bytes or another buffer"
        raise TypeError(f"a file takes bytes, not a {type(data).__name__}: {how} ({error})") from None


async def walk(store: Store, directory: StorePath) -> AsyncIterator[FileStatus]:
    """Iterates over everything below `directory`, a directory always before what is in it.

    A directory that vanishes on the way is skipped; `directory` itself must be there. A link below it is one thing
    found and never walked into: what is behind it lies somewhere else. One listing a directory, and no two at once: for
    trees that are large or far away, list with several workers.

    Raises:
        StoreNotFoundError: Nothing is at `directory`.
        StoreNotADirectoryError: A file is there.
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
    """Looks at a path; None when nothing is there. One call."""
    try:
        return await store.status(path)
    except StoreNotFoundError:
        return None


async def exists(store: Store, path: StorePath) -> bool:
    """Whether anything is at `path`. One call."""
    return await status_or_none(store, path) is not None


CORRECT_THE_PATH: Final = "correct the path"
"""How advice begins where no job can be, whatever its id."""


async def check_destination(store: Store, destination: StorePath, operation: str) -> None:
    """Looks at a destination below which nothing was found; one listing, and none where directories are not real.

    Raises:
        DestinationNotFoundError: Nothing is there, or a link that leads nowhere. Where directories are not real, none
            can be told from an empty one.
        StoreNotADirectoryError: A file is there.
    """
    if not store.capabilities.directories:
        return
    try:
        async for _child in store.list(destination):
            return
    except StoreNotADirectoryError as error:
        raise StoreNotADirectoryError(
            "a file stands there, and a destination is a directory",
            operation=operation,
            path=destination,
            next_step=CORRECT_THE_PATH,
        ) from error
    except StoreNotFoundError as error:
        # A store says what to do where it knows why nothing is there: a link on the way leads nowhere.
        why = f": {error.message.partition(': ')[2]}" if error.next_step else ""
        step = error.next_step or "a job makes its destination when it is set up"
        raise DestinationNotFoundError(
            f"the destination does not exist{why}",
            operation=operation,
            path=destination,
            next_step=f"{CORRECT_THE_PATH}; {step}",
        ) from error


async def children_of(store: Store, directory: StorePath) -> list[FileStatus]:
    """What a directory holds; nothing where none is there. One listing."""
    try:
        return [child async for child in store.list(directory)]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []


class Created(NamedTuple):
    """What stands where a file was to be created.

    Attributes:
        data: Its content: what was to be put, or the winner's.
        status: What the store said of it when it was put; None where the answer was lost, or another won.
    """

    data: bytes
    status: FileStatus | None = None


async def create_exclusively(
    store: Store,
    path: StorePath,
    data: bytes,
    *,
    temporary: StorePath | None = None,
    durable: bool = False,
    limit: int = _SMALL_BYTES,
) -> bytes:
    """Creates a file that only one of many may create, and returns what stands there: `data`, or the winner's bytes.

    See `create_or_read`, which says what the store answered, too.
    """
    created = await create_or_read(store, path, data, temporary=temporary, durable=durable, limit=limit)
    return created.data


async def create_or_read(
    store: Store,
    path: StorePath,
    data: bytes,
    *,
    temporary: StorePath | None = None,
    durable: bool = False,
    limit: int = _SMALL_BYTES,
) -> Created:
    """Creates a file that only one of many may create, and returns what stands there.

    A lost answer is resolved by reading. So `data` must tell its writers apart: who finds its own bytes has won. One
    call when it wins, two when it loses or the answer was lost; with `durable` one more then, since what was read may
    not have been forced to the disk yet.

    Args:
        store: Where; it must have `Capabilities.exclusive_put`.
        path: The file.
        data: Its content.
        temporary: As for `Store.put`.
        durable: As for `Store.put`.
        limit: Longest content of a winner that is read, in bytes.

    Raises:
        StoreNotFoundError: The parent is missing, or the winner's file was deleted before it could be read.
        StoreOutcomeUnknownError: Answers kept being lost, or one was and what came after it was refused; it may stand
            there or not. Or, with `durable`, it stands but may not survive a power loss.
        RecordError: The winner's content is longer than `limit`.
    """
    created = await _create(store, path, data, temporary, durable=durable, limit=limit)
    try:
        if isinstance(created, Created):
            return created
        raise created
    finally:
        # See `retry`: an error that its own frame has waits for the cycle collector.
        del created


async def _create(
    store: Store, path: StorePath, data: bytes, temporary: StorePath | None, *, durable: bool, limit: int
) -> Created | StoreOutcomeUnknownError:
    """What stands there; or the error of the first lost answer, where nothing did after each of so many tries."""
    lost: StoreOutcomeUnknownError | None = None
    error: CommitterError | None = None
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                return Created(data, await store.put(path, data, exclusive=True, temporary=temporary, durable=durable))
            except StoreNotFoundError:
                raise
            except CommitterError as caught:
                error = caught
            except MemoryError as caught:
                error = _out_of_memory(caught, operation="put", path=path)
            # A request that is still under way can land later, but then it finds the one sent next, or is found by it.
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            elif lost is None and not isinstance(error, StoreExistsError):
                raise error
            try:
                found = await store.read(path, limit=limit)
                if durable:
                    await SYNC.required(store, "sync", path.parent).sync(path.parent, kind="directory")
                return Created(found)
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
        return lost
    finally:
        # Likewise.
        error = lost = None


async def move_file(
    store: Store,
    source: StorePath,
    destination: StorePath,
    *,
    replace: bool = False,
    identity: str | None = None,
    limit: int = _COPIED_BYTES,
    by_name: bool = False,
) -> None:
    """Moves a small file, such as a record: by a rename or, on a store without any, by a copy and a conditional delete.

    The copy stands before its source goes, as where a rename is a link and a delete: who dies in between leaves both
    names, and a driver that moves it again finds the copy and removes the source. Only what was copied is deleted,
    decided by the store. One call; five without renames.

    Args:
        store: Where; it renames files, or has `Capabilities.conditional_delete` and `Capabilities.exclusive_put`.
        source: The file.
        destination: Its new path.
        replace: Replace a file that stands there; else fail, unless it holds the very same bytes.
        identity: What the source must be; without renames it is always compared, else as `Store.rename_file` does.
        limit: Longest content that is copied, in bytes.
        by_name: Delete the source by its name where the store has no conditional delete: a file that another job puts
            there meanwhile is deleted.

    Raises:
        StoreNotFoundError: The source is missing.
        StoreExistsError: Something else stands at the destination and `replace` is False.
        StorePreconditionError: The source is another file, or became one meanwhile and stays.
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
    data = await store.read(source, limit=limit)
    after = await store.status(source)
    found = before.identity
    if found is None or found != after.identity or identity not in (None, found):
        raise StorePreconditionError("the source is another file", operation="move_file", path=source)
    if replace:
        await store.put(destination, data)
    elif await create_exclusively(store, destination, data, limit=limit) != data:
        raise StoreExistsError("something stands there already", operation="move_file", path=destination)
    await delete_seen(store, source, identity=found)


async def delete_seen(store: Store, path: StorePath, *, identity: str) -> bool:
    """Deletes a file on the condition that it is the one that was seen; by name, after a look, where the store has no
    conditional delete (`Capabilities.deletes_by_name`).

    Returns:
        True when there was one; False when nothing is there.

    Raises:
        StorePreconditionError: Another file is there; it was not deleted.
    """
    able = CONDITIONAL_DELETE.of(store)
    if able is not None:
        return await able.delete_file_if(path, identity=identity)
    found = await status_or_none(store, path)
    if found is not None and found.identity != identity:
        raise StorePreconditionError("another file is there", operation="delete_file", path=path)
    return found is not None and await store.delete_file(path)


async def put_described(store: Store, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
    """Puts a whole file with texts beside its content, or without where the store keeps none. One call."""
    able = METADATA.of(store)
    if able is not None:
        return await able.put_described(path, data, metadata=metadata)
    return await store.put(path, data)


def too_long(path: StorePath, limit: int) -> RecordError:
    """Builds the error of a file that is longer than its reader allows."""
    return RecordError(f"a file is longer than the {limit} bytes it may have", operation="read", path=path)


def _out_of_memory(error: MemoryError, *, operation: str, path: StorePath) -> StoreOutcomeUnknownError:
    """The error of a call that broke off where memory ran out: it is unknown how far it came."""
    return StoreOutcomeUnknownError("the process ran out of memory", operation=operation, path=path, causes=[error])


def unseen(
    error: CommitterError, hidden: CommitterError, *, operation: str, path: StorePath
) -> StoreOutcomeUnknownError:
    """The error of a call whose answer left its outcome open, and of the look that failed, too."""
    return StoreOutcomeUnknownError(
        f"{error.message}; looking failed: {hidden.message}",
        operation=operation,
        path=path,
        next_step=LOOK_BEFORE,
        causes=(error, hidden),
    )


def check_options(options: Mapping[str, object], *, known: Iterable[str], scheme: str) -> None:
    """Refuses storage options that a store does not know.

    ``http_session`` is always known: every store is offered it, those that speak HTTP use it.

    Raises:
        ConfigurationError: It names the first unknown one, and what may have been meant.
    """
    allowed = sorted({*known, "http_session"})
    for key in options:
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(allowed)}"
            raise ConfigurationError(
                f"the {scheme} store knows no option {shown_name(key)}", operation="open_store", next_step=hint
            )

"""Store for Hadoop's distributed file system: `hdfs:` paths."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    InvalidPathError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.flow.runtime import current_runtime
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.options.storage import CHOICES, OptionTable, StorageOption, by_name, refused
from committer.options.values import SPARK_HADOOP
from committer.paths import StorePath
from committer.stores.abilities import TreeCounts
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.examination import probe_renames
from committer.stores.hdfs.connection import DATA_S, Connection, unanswered
from committer.stores.hdfs.errors import error_of
from committer.stores.helpers import bytes_of, status_or_none, too_long, unusable_writer

if TYPE_CHECKING:
    from hdfs_native import Client
    from hdfs_native import FileStatus as FoundStatus
    from hdfs_native._internal import RawFileWriter

CHUNK_BYTES: Final = 1 << 20
"""Bytes buffered before they go to the client, which sends packets of 64 KiB."""


class HdfsWriter(FileWriter):
    """Writer that appends to a file under its own path, which gets its length when closed."""

    def __init__(self, connection: Connection, store: Store, path: StorePath, inner: RawFileWriter) -> None:
        self._connection = connection
        self._store = store
        self._path = path
        self._inner = inner
        self._buffer = bytearray()
        self._length = 0
        self._open = True
        self._broken = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers the data, or sends it with the buffer."""
        self._check_usable("write")
        self._buffer += bytes_of(data)
        if len(self._buffer) >= CHUNK_BYTES:
            await self._send("write")

    async def close(self) -> FileStatus:
        """Sends the rest, closes the file and returns its status as of then."""
        self._check_usable("close")
        if self._buffer:
            await self._send("close")
        self._broken = True
        await self._call("close", self._inner.close)
        found = await self._store.status(self._path)
        if found.size != self._length:
            raise StoreOutcomeUnknownError(
                f"{self._length} bytes were written, and the file that exists there has {found.size}",
                operation="close",
                path=self._path,
                next_step="write the file again, in another task attempt",
            )
        self._open = False
        return found

    async def abort(self) -> None:
        """Deletes an open file and closes its pipeline."""
        if not self._open:
            return
        self._open = False
        self._buffer = bytearray()
        try:
            await self._store.delete_file(self._path)
        finally:
            # A pipeline that is not closed keeps its connections to DataNodes, also after a failed write. The file
            # is deleted first: the close of a file that lacks bytes is retried for 15 s.
            await run_shielded(self._release, bound_s=UNDO_BOUND_S)

    async def _release(self) -> None:
        with suppress(CommitterError):
            await self._call("abort", self._inner.close)

    async def _call(self, operation: str, send: Callable[[], object]) -> None:
        await self._connection.call(lambda _client: send(), operation, self._path, bound_s=DATA_S)

    async def _send(self, operation: str) -> None:
        # After a failure it is unknown how much arrived, so nothing can be appended.
        self._broken = True
        for start in range(0, len(self._buffer), CHUNK_BYTES):
            part = bytes(self._buffer[start : start + CHUNK_BYTES])
            await self._call(operation, partial(self._inner.write, part))
            self._length += len(part)
        self._buffer = bytearray()
        self._broken = False

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            again = "write it again, in another task attempt"
            raise unusable_writer(self._path, operation, failed=self._open, next_step=again)


LANES: Final = 32
"""Threads per batch. A publish runs four batches: two wait, so that no thread has to be woken."""


def identity_of(found: FoundStatus) -> str:
    """Returns the identity of a file, which a rename keeps.

    Never the file id, if a release of the client shows it: records of older jobs and other releases have this form.
    """
    return f"m{found.modification_time}"


class Renames:
    """Batch of file renames that replace nothing, while it runs.

    The NameNode renames a directory as it does a file, so each source is looked at first, unless `looks` is False and
    `seen` is None. `seen` gives the identity and length that each source must have.
    """

    def __init__(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        seen: Sequence[tuple[str | None, int]] | None,
        *,
        looks: bool = True,
    ) -> None:
        self._renames = renames
        self.above: StorePath = renames[0][1].parent
        self.lanes: int = min(LANES, len(renames))
        self._seen = seen
        self._looks = looks or seen is not None
        self._left = deque(range(len(renames)))
        self._ended: set[int] = set()
        self._errors: dict[int, StoreError] = {}

    def run(self, client: Client) -> None:
        """Renames files until none is left; called in each thread."""
        rename, renames, left, ended = client.inner.rename, self._renames, self._left, self._ended
        looks = self._looks
        while left:
            try:
                index = left.popleft()
            except IndexError:
                return
            source, destination = renames[index]
            try:
                if looks:
                    self._look(client, index, source)
                rename(source.path, destination.path, False)
            except BaseException as error:
                self._errors[index] = _told(error, source, destination)
            ended.add(index)

    def _look(self, client: Client, index: int, source: StorePath) -> None:
        found = client.inner.get_file_info(source.path)
        if found.isdir:
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        if self._seen is not None and self._seen[index] != (identity_of(found), found.length):
            raise StorePreconditionError("another file is there", operation="rename_file", path=source)

    def stop(self) -> dict[int, StoreError]:
        """Starts no further rename; returns errors by index, also of renames that were not begun or did not end."""
        never = []
        while self._left:
            with suppress(IndexError):
                never.append(self._left.pop())
        unknown = set(range(len(self._renames))).difference(never, self._ended.copy())
        errors = dict.fromkeys(never, self._unanswered(may_be_done=False))
        errors |= dict.fromkeys(unknown, self._unanswered(may_be_done=True))
        return errors | self._errors

    def _unanswered(self, *, may_be_done: bool) -> StoreError:
        return unanswered("rename_file", self.above, DATA_S, may_be_done=may_be_done)


async def rename_together(connection: Connection, batch: Renames) -> dict[int, StoreError]:
    """Runs the renames of a batch; returns errors by index. A cancelled caller waits for renames that were begun."""
    # A task of its own, so that no further rename begins once the caller is cancelled.
    running = asyncio.create_task(
        connection.call(batch.run, "rename_file", batch.above, bound_s=DATA_S, lanes=batch.lanes)
    )
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        batch.stop()
        running.cancel()
        # The call bounds its own wait.
        await run_shielded(lambda: asyncio.wait([running]), bound_s=2 * UNDO_BOUND_S)
        raise
    errors = batch.stop()
    error = running.exception()
    # `stop` reports the renames of an abandoned call.
    if error is not None and not isinstance(error, StoreError):
        raise error
    return errors


def _told(error: BaseException, source: StorePath, destination: StorePath) -> StoreError:
    if not isinstance(error, CommitterError):
        error = error_of(error, "rename_file", destination, source=source)
    if not isinstance(error, StoreError):
        raise error
    return error


HADOOP_FAMILIES: Final = ("dfs.", "hadoop.security.", "hadoop.rpc.", "fs.defaultfs")
"""Prefixes of Hadoop's keys that the client reads."""

TABLE: Final = OptionTable(
    store="HDFS",
    options=(
        StorageOption(
            "config_directory",
            "the directory of Hadoop's core-site.xml and hdfs-site.xml; without it `HADOOP_CONF_DIR`, else"
            " `HADOOP_HOME`/etc/hadoop",
            others=("config_dir", "hadoop_conf_dir"),
        ),
        StorageOption(
            "user",
            "who the NameNode is to see, where the cluster does not authenticate: it must be what `HADOOP_USER_NAME`"
            " says, or else the system's user",
            others=("hadoop_user_name",),
        ),
        StorageOption("http_session", "of no use here, and taken by every store", instance=True),
    ),
    advice=by_name({
        "leave it out and write it into the path: hdfs://HOST:PORT/path": ("host", "port"),
        "leave it out: log in with kinit; the ticket cache is found as Hadoop finds it (KRB5CCNAME)": (
            "kerb_ticket", "kerberos_cache", "ticket_cache",
        ),
        "set it in hdfs-site.xml": ("replication", "default_block_size", "buffer_size"),
        "set these keys in hdfs-site.xml, or give them as options of their own: dfs.KEY": ("extra_conf",),
        CHOICES: ("max_retries", "timeout", "connect_timeout"),
    }),
    hadoop_families=HADOOP_FAMILIES,
)  # fmt: skip


_MAX_PATH: Final = 8000
# ``dfs.namenode.fs-limits.max-component-length``, and ``HdfsConstants.MAX_PATH_LENGTH``, which counts characters.
_CAPABILITIES: Final = Capabilities(
    deletes_trees=True, max_name_bytes=255, max_path_bytes=_MAX_PATH, batch_rename=True, tree_counts=True
)
PUT_S: Final = DATA_S
"""Longest time of all calls of one put, in seconds."""

_FILE_MODE: Final = 0o666
_DIRECTORY_MODE: Final = 0o777


class HdfsStore(Store):
    """Store of one HDFS file system, over the NameNode's own protocol (the package hdfs-native).

    - A file's identity is its modification time in milliseconds, which a rename keeps. Another file would pass for
      it only with the same length and name, if it was closed in the same millisecond.
    - The NameNode renames files and directories alike, so a source is looked at first, unless it was counted.
    - Calls block in at most 64 threads. A cancelled caller waits at most a minute for the end of a call that changes
      something, so that it has no later effect.
    - Deletes look first: the NameNode's delete of a file also deletes an empty directory.
    - ``put`` writes a file beside its place and renames it: 5 calls.
    - The client repeats only reads. A call without response is abandoned after 150 s, one that moves bytes or
      renames many files after 300 s.
    - New files and directories have the permissions of Hadoop's client: ``fs.permissions.umask-mode``, else 022.

    Args:
        authority: A host with a port, or a nameservice; empty for Hadoop's ``fs.defaultFS``.
        config_directory: The directory of Hadoop's configuration; by default where Hadoop looks.
        hadoop: Hadoop's keys that win over the configuration.
    """

    def __init__(
        self, authority: str, *, config_directory: str | None = None, hadoop: Mapping[str, str] | None = None
    ) -> None:
        self._authority = authority
        self._config_directory = config_directory
        self._hadoop = dict(hadoop or {})
        self._connection = Connection(authority, config_directory, self._hadoop)

    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> HdfsStore:
        """Creates the store from ``storage_options``, by any name in the class's table; raises `ConfigurationError`."""
        hadoop: dict[str, str] = {}
        others: dict[str, object] = {}
        for key, value in options.items():
            plain = key.removeprefix(SPARK_HADOOP)
            if plain.lower().startswith(HADOOP_FAMILIES):
                hadoop[plain] = _no_secret(plain, str(value))
            else:
                others[key] = value
        found = TABLE.named(others)
        _check_user(found.get("user"))
        directory = found.get("config_directory")
        return cls(path.authority, config_directory=str(directory) if directory else None, hadoop=hadoop)

    def __repr__(self) -> str:
        return f"HdfsStore(hdfs://{self._authority})"

    def __reduce__(self) -> tuple[object, ...]:
        # Connections and threads belong to this process.
        options: dict[str, Any] = {"config_directory": self._config_directory, "hadoop": self._hadoop}
        return partial(HdfsStore, self._authority, **options), ()

    @property
    def scheme(self) -> str:
        """``hdfs``."""
        return "hdfs"

    @property
    def endpoint(self) -> str:
        """The file system, whose limits are its NameNode's."""
        return f"hdfs://{self._authority}"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of HDFS."""
        return _CAPABILITIES

    async def probe(self, directory: StorePath) -> None:
        """Tests renames in `directory`."""
        await probe_renames(
            self, _checked(directory), subject="this file system", instead="write to a NameNode of Hadoop's own"
        )

    async def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path."""
        name = _checked(path).path
        found = await self._connection.call(lambda client: client.get_file_info(name), "status", path, changes=False)
        return _status(found, path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children; one call per page (``dfs.ls.limit``, 1,000)."""
        name = _checked(directory).path
        scheme, authority = directory.scheme, directory.authority
        async for found in self._connection.entries(name, "list", directory):
            if found.path == name and not found.isdir:
                # HDFS lists a file as itself.
                raise StoreNotADirectoryError("a file is there", operation="list", path=directory)
            yield _status(found, StorePath(scheme, authority, found.path))

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        data = await self._connection.read(_checked(path).path, path, limit=limit)
        if data is None:
            raise too_long(path, limit)
        return data

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a small file beside its place, and renames it.

        A cancelled caller waits for the end: a create under way would make the temporary file after its cleanup.
        """
        _checked(path)
        # A name for this call only: a delayed request of an earlier try finds nothing under it.
        beside = temporary or path.parent / ".put.tmp"
        beside = beside.parent / f"{beside.name}-{current_runtime().nonce()}"
        done: list[FileStatus] = []

        async def put() -> None:
            done.append(await self._put(path, data, beside, exclusive=exclusive))

        if not await run_shielded(put, bound_s=PUT_S):
            raise StoreOutcomeUnknownError(
                f"the file was not written within {PUT_S:.0f} s, and may be there",
                operation="put",
                path=path,
                next_step=LOOK_BEFORE,
            )
        return done[0]

    async def _put(self, path: StorePath, data: bytes, temporary: StorePath, *, exclusive: bool) -> FileStatus:
        writer: HdfsWriter | None = None
        try:
            inner = await self._create(temporary, "put", overwrite=True)
            writer = HdfsWriter(self._connection, self, temporary, inner)
            await writer.write(data)
            written = await writer.close()
            source, target = temporary.path, path.path
            await self._connection.call(
                lambda client: client.rename(source, target, overwrite=not exclusive),
                "put",
                path,
                replaces=not exclusive,
            )
        except BaseException:
            await run_shielded(lambda: self._undo_put(temporary, writer), bound_s=UNDO_BOUND_S)
            raise
        return FileStatus(path, False, len(data), written.modified, written.identity)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates the file, which is empty until the writer is closed."""
        return HdfsWriter(self._connection, self, path, await self._create(path, "open_writer", overwrite=False))

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Creates a directory; looks first, since the NameNode does not say whether it existed."""
        found = await status_or_none(self, path)
        if found is not None and found.is_directory:
            return False
        name, mode = path.path, await self._mode(_DIRECTORY_MODE)
        await self._connection.call(
            lambda client: client.mkdirs(name, mode, create_parent=parents), "make_directory", path
        )
        return True

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames a file; two calls."""
        if (await self.status(source)).is_directory:
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        await self._rename("rename_file", source, destination, replace=replace)

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        """Renames many files in a few threads, replacing nothing; two calls each, one without `looks`."""
        if not renames:
            return {}
        batch = Renames(
            [(_checked(source), _checked(destination)) for source, destination in renames], seen, looks=looks
        )
        return await rename_together(self._connection, batch)

    async def count_tree(self, directory: StorePath) -> TreeCounts:
        """Counts the content of a directory, with snapshots, as ``hdfs dfs -count`` does."""
        name = _checked(directory).path
        found = await self._connection.call(
            lambda client: client.inner.get_content_summary(name), "count_tree", directory, changes=False
        )
        return TreeCounts(found.file_count, found.directory_count, found.length)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Renames a directory; two calls."""
        if not (await self.status(source)).is_directory:
            raise StoreNotADirectoryError("a file is there", operation="rename_directory", path=source)
        await self._rename("rename_directory", source, destination, replace=False)

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file; two calls."""
        found = await status_or_none(self, path)
        if found is None:
            return False
        if found.is_directory:
            raise StoreIsADirectoryError("a directory is there", operation="delete_file", path=path)
        return await self._delete("delete_file", path, recursive=False)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory; two calls."""
        found = await status_or_none(self, path)
        if found is None:
            return False
        if not found.is_directory:
            raise StoreNotADirectoryError("a file is there", operation="delete_directory", path=path)
        return await self._delete("delete_directory", path, recursive=recursive)

    async def close(self) -> None:
        """Waits at most ten seconds for abandoned calls; the client stays with the process."""
        await self._connection.close()

    async def _create(self, path: StorePath, operation: str, *, overwrite: bool) -> RawFileWriter:
        from hdfs_native import WriteOptions

        mode = await self._mode(_FILE_MODE)
        options = WriteOptions(permission=mode, overwrite=overwrite, create_parent=False)
        name = _checked(path).path

        made_by: list[Client] = []

        def create(client: Client) -> RawFileWriter:
            made_by.append(client)
            # Not the client's Python wrapper, which closes the file, with calls, when it is garbage-collected.
            return client.inner.create(name, options)

        def remove(writer: RawFileWriter) -> None:
            writer.close()
            made_by[0].delete(name, False)

        return await self._connection.call(create, operation, path, replaces=overwrite, undo=remove)

    async def _rename(self, operation: str, source: StorePath, destination: StorePath, *, replace: bool) -> None:
        here, there = _checked(source).path, _checked(destination).path
        await self._connection.call(
            lambda client: client.rename(here, there, overwrite=replace),
            operation,
            destination,
            source=source,
            replaces=replace,
        )

    async def _delete(self, operation: str, path: StorePath, *, recursive: bool) -> bool:
        name = path.path
        return await self._connection.call(lambda client: client.delete(name, recursive), operation, path)

    async def _undo_put(self, path: StorePath, writer: HdfsWriter | None) -> None:
        with suppress(CommitterError):
            await self._delete("put", path, recursive=False)
        if writer is not None:
            with suppress(CommitterError):
                await writer.abort()

    async def _mode(self, mode: int) -> int:
        return mode & ~(await self._connection.configuration()).umask


def _checked(path: StorePath) -> StorePath:
    """Checks that the NameNode accepts a path unchanged (``DFSUtil.isValidName``)."""
    name, why = path.path, ""
    if ":" in name or "\0" in name:
        why = "with a colon or a NUL"
    elif len(name) > _MAX_PATH:
        why = f"that is longer than {_MAX_PATH} characters"
    elif not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            why = "that is not Unicode text"
    if why:
        raise InvalidPathError(f"HDFS takes no name {why}", path=ascii(name), next_step="choose another name")
    return path


def _status(found: Any, path: StorePath) -> FileStatus:
    modified = found.modification_time / 1000
    if found.isdir:
        return FileStatus(path, True, 0, modified)
    return FileStatus(path, False, found.length, modified, identity_of(found))


def _check_user(user: object) -> None:
    """Refuses a user other than the client's, which takes no user as an argument."""
    if user is None:
        return
    effective = os.environ.get("HADOOP_USER_NAME", "")
    if not effective:
        with suppress(KeyError):
            effective = pwd.getpwuid(os.geteuid()).pw_name
    if user != effective:
        raise refused(
            f"the option user is {user!r}, and this process is {effective!r} to HDFS",
            f"set the environment variable HADOOP_USER_NAME={user} before the process starts, and leave the option out",
        )


def _no_secret(key: str, value: str) -> str:
    """Refuses a secret, since the value travels with the store to other processes in the clear."""
    if "password" in key.lower() or "secret" in key.lower():
        raise refused(
            f"the option {key} would travel to other processes in the clear",
            "leave it in Hadoop's configuration files, and give config_directory",
        )
    return value

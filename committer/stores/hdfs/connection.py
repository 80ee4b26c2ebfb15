"""Client of a NameNode: its configuration, and calls in threads, with a deadline.

The client's own coroutines can deadlock (hdfs-native 0.14.7: ``RpcListener::start``, ``RpcConnection::call``). The
event loop's thread polls them with the interpreter's lock. When a connection breaks, a thread of the client holds
the lock of the waiting calls and wakes their coroutines, which needs the interpreter's lock: each waits for the
other. A blocking call releases the interpreter's lock first, and no thread of the client asks for it.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import hashlib
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.threads import LastingExecutor
from committer.options.hadoop import read_properties
from committer.options.storage import refused
from committer.paths import StorePath
from committer.stores.hdfs.errors import error_of
from committer.stores.http_answers import PageTokens

if TYPE_CHECKING:
    from hdfs_native import Client


_FILES: Final = ("core-site.xml", "hdfs-site.xml")
_DEFAULT_UMASK: Final = 0o022


class ClientConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a cluster. Its `digest` is of all files and options.

    `directory` is empty without files; `authority` is a host with a port, or a nameservice; `umask` is
    `fs.permissions.umask-mode`, and the socket timeout is `dfs.client.socket-timeout`, the wait for DataNodes.
    """

    directory: str
    authority: str
    name_nodes: int
    umask: int
    socket_timeout_is_set: bool
    digest: str


def read_configuration(
    authority: str, directory: str | None, options: Mapping[str, str] | None = None
) -> ClientConfiguration:
    """Reads the configuration files, if there are any; blocks.

    Looks in `directory`, else where Hadoop does: `HADOOP_CONF_DIR`, then `HADOOP_HOME`/etc/hadoop. An empty
    authority is that of ``fs.defaultFS``; `options` win over the files. Raises `ConfigurationError` for a missing
    directory or an unreadable file.
    """
    place = directory if directory is not None else _directory_of_environment()
    if directory is not None and not Path(directory).is_dir():
        raise refused(
            f"the option config_directory names no directory: {directory}",
            "give the directory that holds core-site.xml and hdfs-site.xml",
        )
    properties: dict[str, str] = {}
    for name in _FILES if place else ():
        properties.update(read_properties(Path(place, name)))
    properties.update(options or {})
    if not authority:
        authority = properties.get("fs.defaultFS", "").removeprefix("hdfs://").partition("/")[0]
    serving = properties.get(f"dfs.ha.namenodes.{authority}", "")
    return ClientConfiguration(
        directory=place,
        authority=authority,
        name_nodes=max(1, len([one for one in serving.split(",") if one.strip()])),
        umask=_umask_of(properties),
        socket_timeout_is_set="dfs.client.socket-timeout" in properties,
        digest=hashlib.sha256(repr(sorted(properties.items())).encode()).hexdigest(),
    )


def _directory_of_environment() -> str:
    home = os.environ.get("HADOOP_HOME", "")
    return os.environ.get("HADOOP_CONF_DIR") or (str(Path(home, "etc", "hadoop")) if home else "")


def _umask_of(properties: Mapping[str, str]) -> int:
    text = properties.get("fs.permissions.umask-mode", "")
    try:
        umask = int(text, 8) if text else _DEFAULT_UMASK
    except ValueError:
        umask = -1
    if not 0 <= umask <= 0o777:
        raise refused(
            f"fs.permissions.umask-mode is {text!r}, which is no mask in octal digits", "give octal digits, such as 022"
        )
    return umask


T = TypeVar("T")

# A thread that returns from a call while the interpreter shuts down would abort the process.
_EXIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class UnansweredError(Exception):
    """Error of a call that did not end within its deadline. If `begun`, it may still be done."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun: bool = begun


class _Undoable(Generic[T]):
    """Function whose thread undoes the result if the caller left before the end."""

    def __init__(self, function: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._function = function
        self._undo = undo
        self._lock = threading.Lock()
        self._left = False
        self._ended = False

    def __call__(self) -> T:
        result = self._function()
        with self._lock:
            self._ended = True
        if self._left:
            self.undo(result)
        return result

    def leave(self) -> bool:
        """Marks the caller as gone; returns False if the function ended before."""
        with self._lock:
            self._left = not self._ended
        return self._left

    def undo(self, result: T) -> None:
        """Undoes a result; its failure means nothing to the caller, who left."""
        with suppress(BaseException):
            self._undo(result)


class Threads:
    """Pool of at most `most` threads for blocking calls; threads start on demand.

    A begun call cannot be stopped. If its caller leaves, its thread works to the end, and `drain` and the exit of
    the process wait for it.
    """

    def __init__(self, most: int) -> None:
        self._pool = LastingExecutor(most, "committer-hdfs")
        # Calls that have not ended; threads take theirs out.
        self._open: set[Future[Any]] = set()
        _all.add(self)

    @property
    def running(self) -> int:
        """The number of calls that threads have begun and not ended."""
        return sum(call.running() for call in list(self._open))

    async def run(
        self,
        function: Callable[[], T],
        *,
        bound_s: float,
        settle_s: float = 0.0,
        undo: Callable[[T], object] | None = None,
        lanes: int = 1,
    ) -> T:
        """Calls a function in a thread, or in up to `lanes` threads: the last result and any error count.

        A call that takes longer than `bound_s`, with the wait for a thread, raises `UnansweredError`. A cancelled
        caller waits `settle_s` for the end of a begun call, so that it has no later effect; a call that was not
        begun is dropped. `undo`, for one lane, is called in a thread with the result if the caller left before.
        Raises `StoreUnavailableError` if no thread is idle and none can be started.
        """
        undoable = None if undo is None else _Undoable(function, undo)
        calls = [self._begin(undoable or function)]
        with suppress(StoreUnavailableError):
            while len(calls) < lanes:
                calls.append(self._begin(function))
        try:
            if not await _ended(calls, bound_s):
                begun = _give_up(calls)
                if begun and undoable is not None:
                    self._undo(calls[0], undoable)
                if begun or all(call.cancelled() for call in calls):
                    raise UnansweredError(begun=bool(begun))
            return _result_of(calls)
        except asyncio.CancelledError:
            begun = _give_up(calls)
            if undoable is not None and not calls[0].cancelled():
                begun += self._undo(calls[0], undoable)
            if begun and settle_s:
                await run_shielded(partial(_ended, begun, settle_s), bound_s=settle_s)
            raise
        finally:
            # The traceback of an error holds this frame: with the calls every failure would be a reference cycle.
            del calls, undoable

    async def drain(self, bound_s: float) -> bool:
        """Waits for begun calls; returns whether they ended in time."""
        runtime = current_runtime()
        deadline = runtime.monotonic() + bound_s
        while self._open and runtime.monotonic() < deadline:
            await runtime.sleep(_LOOK_S)
        return not self._open

    def _undo(self, call: Future[T], undoable: _Undoable[T]) -> list[Future[Any]]:
        """Undoes the result of an abandoned call, in its own thread, or in the returned call if it has ended."""
        if undoable.leave():
            return []
        # Without a thread the result stays: the error of the caller matters more.
        with suppress(StoreUnavailableError):
            return [self._begin(lambda: undoable.undo(call.result()))]
        return []

    def _begin(self, function: Callable[[], T]) -> Future[T]:
        try:
            call = self._pool.submit(function)
        except (RuntimeError, MemoryError) as error:
            raise StoreUnavailableError(f"no thread can be started: {error}") from error
        self._open.add(call)
        # A bound method: the pool lives, and the exit of the process waits, while a call runs.
        call.add_done_callback(self._end)
        return call

    def _end(self, call: Future[Any]) -> None:
        self._open.discard(call)


async def _ended(calls: Sequence[Future[Any]], bound_s: float) -> bool:
    """Waits for the end of calls; returns whether all ended in time."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def end(_call: Future[Any]) -> None:
        # The loop may be closed.
        if all(call.done() for call in calls):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

    for call in calls:
        call.add_done_callback(end)
    timer = loop.call_later(bound_s, tell)
    try:
        await waiter
    finally:
        timer.cancel()
    return all(call.done() for call in calls)


def _give_up(calls: Sequence[Future[Any]]) -> list[Future[Any]]:
    """Drops calls that no thread has begun; returns those that run."""
    return [call for call in calls if not call.cancel() and not call.done()]


def _result_of(calls: Sequence[Future[T]]) -> T:
    """Returns the last result of calls that ended, or raises an error of theirs."""
    try:
        for call in calls:
            if not call.cancelled():
                result = call.result()
        return result
    finally:
        # As in `Threads.run`.
        del calls, call


_all: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()


def _let_calls_end() -> None:
    deadline = time.monotonic() + _EXIT_S
    while any(threads.running for threads in list(_all)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


atexit.register(_let_calls_end)

CALL_S: Final = 150.0
"""Longest call to the NameNode, in seconds: the client needs 130 s to notice a lost host, then asks the next one."""

DATA_S: Final = 300.0
"""Longest call that moves bytes, in seconds: the client replaces a lost DataNode in that time."""

THREADS: Final = 64
"""Calls in flight; with more a NameNode answers no faster."""

_SOCKET_TIMEOUT: Final = "dfs.client.socket-timeout"
_SOCKET_TIMEOUT_MS: Final = "15000"
_PROVIDER: Final = "dfs.client.failover.proxy.provider."
_ASKING_THE_ACTIVE: Final = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_PAGE: Final = 1000
_CLOSE_S: Final = 10.0
# Longest wait of a reader for the report of a file's last block, and between two tries. DataNodes send it at once,
# or with a heartbeat (``dfs.blockreport.incremental.intervalMsec``).
_REPORTED_S: Final = 30.0
_UNREPORTED_LOOK_S: Final = 0.02
# The client reads these whenever it connects (``security/user.rs``).
_WHO: Final = ("HADOOP_USER_NAME", "HADOOP_PROXY_USER", "KRB5CCNAME")

# One client per user and configuration; it serves all threads and cannot be closed. Its deallocation would stop its
# threads and wait for them, and in a forked child they do not exist. So none is deallocated, not even at exit.
_clients: Final[dict[tuple[object, ...], Client]] = {}

# A forked child inherits the connections to DataNodes that its parent caches this long (``DATANODE_CACHE_EXPIRY``, 3
# seconds). If it used one, two processes would read from one socket.
_DATA_NODES_KEPT_S: Final = 3.5
_usable_since: Final[list[float]] = []


def _forget_the_parents() -> None:
    _all.clear()
    _clients.clear()
    if "hdfs_native" in sys.modules:
        _usable_since[:] = [time.monotonic() + _DATA_NODES_KEPT_S]


os.register_at_fork(after_in_child=_forget_the_parents)


class _Opened(NamedTuple):
    process: int
    client: Client
    threads: Threads
    known: ClientConfiguration
    who: tuple[str | None, ...]


class Connection:
    """Connection to the NameNodes of one authority; see `HdfsStore` for the arguments."""

    def __init__(self, authority: str, config_directory: str | None, options: dict[str, str]) -> None:
        self._authority = authority
        self._config_directory = config_directory
        self._options = options
        self._made: _Opened | None = None

    async def configuration(self) -> ClientConfiguration:
        """Returns the configuration of the cluster."""
        return (await self._opened()).known

    async def call(
        self,
        send: Callable[[Client], T],
        operation: str,
        path: StorePath,
        *,
        source: StorePath | None = None,
        changes: bool = True,
        replaces: bool = False,
        bound_s: float = CALL_S,
        undo: Callable[[T], object] | None = None,
        lanes: int = 1,
    ) -> T:
        """Sends a call in a thread, or many in `lanes` threads; raises the errors of `error_of`.

        The client has no timeouts: a call without response is abandoned after `bound_s`. A cancelled caller waits at
        most a minute for the end of a call that changes something; `undo` reverts a creation.
        """
        opened = await self._opened()
        try:
            return await opened.threads.run(
                partial(send, opened.client),
                bound_s=bound_s,
                settle_s=UNDO_BOUND_S if changes else 0.0,
                undo=undo,
                lanes=lanes,
            )
        except UnansweredError as error:
            raise unanswered(operation, path, bound_s, may_be_done=changes and error.begun) from None
        except BaseException as error:
            if not is_the_clients(error):
                raise
            raise error_of(error, operation, path, source=source, changes=changes, replaces=replaces) from None

    async def read(self, name: str, path: StorePath, *, limit: int) -> bytes | None:
        """Reads a whole file; returns None if it is longer than `limit`.

        A NameNode may close a file before a DataNode has reported its last block
        (``dfs.namenode.file.close.num-committed-allowed``). Until then it gives readers a length without that block
        (``computeFileSizeNotIncludingLastUcBlock``), and hdfs-native reads no further; its status has the full
        length. Raises `StoreUnavailableError` if no DataNode reports the block in time.
        """

        def read(client: Client) -> bytes | None:
            if _usable_since:
                time.sleep(max(0.0, _usable_since[0] - time.monotonic()))
            until = time.monotonic() + _REPORTED_S
            while True:
                reader = client.read(name)
                length = len(reader)
                data = reader.read_range(0, length) if length <= limit else b""
                whole = client.inner.get_file_info(name).length
                if max(length, whole) > limit:
                    return None
                if length == whole:
                    return data
                if time.monotonic() > until:
                    raise StoreUnavailableError(
                        f"no DataNode has reported the last block of the file: {length} of {whole} bytes can be read",
                        operation="read",
                        path=path,
                        next_step="see that DataNodes are alive (hdfs dfsadmin -report), then do it again",
                    )
                time.sleep(_UNREPORTED_LOOK_S)

        return await self.call(read, "read", path, changes=False, bound_s=DATA_S)

    async def entries(self, name: str, operation: str, path: StorePath) -> AsyncIterator[Any]:
        """Iterates over a listing, with a deadline for each page."""
        entries = (await self._opened()).client.list_status(name)

        def page(_client: Client) -> list[Any]:
            return list(islice(entries, _PAGE))

        tokens = PageTokens(operation, path)
        while found := await self.call(page, operation, path, changes=False):
            # The last name of a page is the token of the next.
            tokens.following(found[-1].path)
            for entry in found:
                yield entry

    async def close(self) -> None:
        """Waits at most ten seconds for abandoned calls, and forgets the client."""
        made, self._made = self._made, None
        if made is not None and made.process == os.getpid():
            await made.threads.drain(_CLOSE_S)

    async def _opened(self) -> _Opened:
        made = self._made
        if made is None or made.process != os.getpid():
            made = await current_runtime().run_blocking(self._make)
            if self._made is None or self._made.process != made.process:
                self._made = made
        if made.who != _who():
            raise refused(
                f"the user of hdfs://{self._authority} was changed after it was opened: {', '.join(_WHO)}",
                "open a store for each user, and set these variables of the environment before",
            )
        return made

    def _make(self) -> _Opened:
        try:
            from hdfs_native import Client
        except ImportError:
            raise UnsupportedError(
                "hdfs: paths need the package hdfs-native, which is not installed",
                operation="open_store",
                next_step="pip install 'lake-committer[hdfs]'",
            ) from None
        known = read_configuration(self._authority, self._config_directory, self._options)
        options = self._options_for(known)
        place = known.directory or None
        who = _who()
        key = (self._authority, place, known, os.geteuid(), who, *sorted(options.items()))
        client = _clients.get(key)
        if client is None:
            client = _clients.setdefault(key, _kept(self._client(Client, options, place)))
        return _Opened(os.getpid(), client, Threads(THREADS), known, who)

    def _options_for(self, known: ClientConfiguration) -> dict[str, str]:
        """Returns the client's options beside the files.

        One try per NameNode, since the engine retries. A DataNode's timeout is below that of a call. No observers:
        after a lost response they may show an old state.
        """
        options = dict(self._options)
        if not known.socket_timeout_is_set:
            options.setdefault(_SOCKET_TIMEOUT, _SOCKET_TIMEOUT_MS)
        options["dfs.client.failover.max.attempts"] = str(known.name_nodes - 1)
        options[f"{_PROVIDER}{known.authority}"] = _ASKING_THE_ACTIVE
        return options

    def _client(self, kind: type[Client], options: dict[str, str], place: str | None) -> Client:
        try:
            return kind(f"hdfs://{self._authority}" if self._authority else None, options, place)
        except Exception as error:
            if not is_the_clients(error):
                raise
            raise refused(
                f"hdfs://{self._authority} cannot be reached with this configuration: {error}",
                "write hdfs://HOST:PORT/path, or set HADOOP_CONF_DIR, or the option config_directory, to the "
                "directory whose hdfs-site.xml describes the nameservice",
            ) from None


def is_the_clients(error: BaseException) -> bool:
    """Whether the client raised it; its panics are no `Exception`."""
    if isinstance(error, CommitterError | MemoryError):
        return False
    return isinstance(error, OSError | RuntimeError | ValueError) or type(error).__name__ == "PanicException"


def unanswered(operation: str, path: StorePath, bound_s: float, *, may_be_done: bool) -> StoreError:
    """Returns the error of a call that did not end within its deadline."""
    if may_be_done:
        return StoreOutcomeUnknownError(
            f"no answer came within {bound_s:.0f} s, and it may have been done",
            operation=operation,
            path=path,
            next_step=LOOK_BEFORE,
        )
    return StoreUnavailableError(f"no answer came within {bound_s:.0f} s", operation=operation, path=path)


def _who() -> tuple[str | None, ...]:
    return tuple([os.environ.get(name) for name in _WHO])


def _kept(client: Client) -> Client:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.inner))
    return client

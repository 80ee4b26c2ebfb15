"""The client of a NameNode: made when it is first used, kept, and called within a bound."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.hdfs.configuration import ClientConfiguration, read_configuration
from committer.stores.hdfs.errors import error_of

if TYPE_CHECKING:
    from hdfs_native import AsyncClient

T = TypeVar("T")

CALL_S: Final = 150.0
"""How long one call to the NameNode may take: a host that is gone is noticed after 130 s, and the next one asked."""

DATA_S: Final = 300.0
"""How long one call may take that moves bytes: the client looks for another DataNode when one is gone."""

_SOCKET_TIMEOUT: Final = "dfs.client.socket-timeout"
_SOCKET_TIMEOUT_MS: Final = "15000"
_PROVIDER: Final = "dfs.client.failover.proxy.provider."
_ASKING_THE_ACTIVE: Final = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_PAGE: Final = 1000
_EXIT_S: Final = 0.1

# One client for each configuration, for as long as the process lives. The client is made for that: it serves all loops,
# and cannot be closed. To let go of one stops its threads, and waits for them, holding the lock of the interpreter that
# they may wait for; in a forked child they are not even there. So none is let go of, at exit neither.
_clients: Final[dict[tuple[object, ...], AsyncClient]] = {}

# Listings go through threads that all clients of a process share: a child that was forked after one has none.
_forked: Final[list[int]] = []


def _forget_the_parents() -> None:
    _clients.clear()
    if "hdfs_native" in sys.modules:
        _forked.append(os.getpid())


os.register_at_fork(after_in_child=_forget_the_parents)


def _let_threads_end() -> None:
    """At exit: gives the client's threads time to let go of what Python's they hold.

    One that asks for the lock of an interpreter that is being shut down aborts the process (SIGABRT), whatever came of
    its work: seen in one of three runs that end right after their last call (hdfs-native 0.14.7, Python 3.11).
    """
    if _clients:
        time.sleep(_EXIT_S)


atexit.register(_let_threads_end)


def _kept(client: AsyncClient) -> AsyncClient:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.inner))
    return client


class Connection:
    """What sends calls to the NameNodes of one authority.

    Args:
        authority: A host with a port, or a nameservice; empty for Hadoop's ``fs.defaultFS``.
        config_directory: Where Hadoop's configuration is; None looks where Hadoop does.
        options: Hadoop's ``dfs.*`` and ``hadoop.*`` keys, which win over the configuration.
    """

    def __init__(self, authority: str, config_directory: str | None, options: dict[str, str]) -> None:
        self._authority = authority
        self._config_directory = config_directory
        self._options = options
        self._made: tuple[int, AsyncClient, ClientConfiguration] | None = None

    async def configuration(self) -> ClientConfiguration:
        """What is known of the cluster."""
        return (await self._opened())[2]

    async def call(
        self,
        send: Callable[[AsyncClient], Awaitable[T]],
        operation: str,
        path: StorePath,
        *,
        source: StorePath | None = None,
        changes: bool = True,
        replaces: bool = False,
        bound_s: float = CALL_S,
    ) -> T:
        """Sends one call; see `error_of` for the arguments and what it raises.

        A call without answer is given up after `bound_s`: the client knows no timeouts.
        """
        client = (await self._opened())[1]
        try:
            async with asyncio.timeout(bound_s):
                return await send(client)
        except TimeoutError:
            raise _unanswered(operation, path, bound_s, changes=changes) from None
        except (Exception, BaseException) as error:
            if not _is_the_clients(error):
                raise
            raise error_of(error, operation, path, source=source, changes=changes, replaces=replaces) from None

    async def entries(self, name: str, operation: str, path: StorePath) -> AsyncIterator[Any]:
        """Iterates over what a listing gives; a bound for each."""
        opened = await self._opened()
        if _forked:
            async for entry in self._entries_of_a_child(name, operation, path, opened[2]):
                yield entry
            return
        entries = opened[1].list_status(name)

        def following(_client: AsyncClient) -> Awaitable[Any]:
            return anext(entries)

        while True:
            try:
                entry = await self.call(following, operation, path, changes=False)
            except StopAsyncIteration:
                return
            yield entry

    async def _entries_of_a_child(
        self, name: str, operation: str, path: StorePath, known: ClientConfiguration
    ) -> AsyncIterator[Any]:
        """Lists by a blocking client, which has threads of its own, in a thread."""
        from hdfs_native import Client

        def opened() -> Iterator[Any]:
            client = Client(self._url(), self._options_for(known), known.directory or None)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.inner))
            return client.list_status(name)

        runtime = current_runtime()
        entries = await self.call(lambda _client: runtime.run_blocking(opened), operation, path, changes=False)

        def page() -> list[Any]:
            return list(islice(entries, _PAGE))

        while found := await self.call(lambda _client: runtime.run_blocking(page), operation, path, changes=False):
            for entry in found:
                yield entry

    def close(self) -> None:
        """Forgets the client."""
        self._made = None

    async def _opened(self) -> tuple[int, AsyncClient, ClientConfiguration]:
        made = self._made
        if made is None or made[0] != os.getpid():
            made = await current_runtime().run_blocking(self._make)
            if self._made is None or self._made[0] != made[0]:
                self._made = made
        return made

    def _make(self) -> tuple[int, AsyncClient, ClientConfiguration]:
        try:
            from hdfs_native import AsyncClient
        except ImportError:
            raise UnsupportedError(
                "hdfs: paths need the package hdfs-native, which is not installed",
                operation="open_store",
                next_step="pip install 'lake-committer[hdfs]'",
            ) from None
        known = read_configuration(self._authority, self._config_directory, self._options)
        options = self._options_for(known)
        place = known.directory or None
        key = (self._authority, place, *sorted(options.items()))
        client = _clients.get(key)
        if client is None:
            client = _clients.setdefault(key, _kept(self._client(AsyncClient, options, place)))
        return os.getpid(), client, known

    def _url(self) -> str | None:
        return f"hdfs://{self._authority}" if self._authority else None

    def _options_for(self, known: ClientConfiguration) -> dict[str, str]:
        """What the client is told beside the files.

        One try a NameNode: more sleep in a way that fails outside of the client's own threads (hdfs-native 0.14). A
        DataNode that is gone is given up before the call is. No observer is read from: it may show the past to one who
        looks what became of a call.
        """
        options = dict(self._options)
        if not known.socket_timeout_is_set:
            options.setdefault(_SOCKET_TIMEOUT, _SOCKET_TIMEOUT_MS)
        options["dfs.client.failover.max.attempts"] = str(known.name_nodes - 1)
        options[f"{_PROVIDER}{known.authority}"] = _ASKING_THE_ACTIVE
        return options

    def _client(self, kind: type[AsyncClient], options: dict[str, str], place: str | None) -> AsyncClient:
        try:
            return kind(self._url(), options, place)
        except Exception as error:
            if not _is_the_clients(error):
                raise
            raise ConfigurationError(
                f"hdfs://{self._authority} cannot be reached with this configuration: {error}",
                operation="open_store",
                next_step="write hdfs://HOST:PORT/path, or set HADOOP_CONF_DIR, or the option config_directory, to the "
                "directory whose hdfs-site.xml describes the nameservice",
            ) from None


def _is_the_clients(error: BaseException) -> bool:
    """Whether the client raised it: its panics are no `Exception` of Python's."""
    if isinstance(error, CommitterError | StopAsyncIteration | asyncio.CancelledError | MemoryError):
        return False
    return isinstance(error, OSError | RuntimeError | ValueError) or type(error).__name__ == "PanicException"


def _unanswered(operation: str, path: StorePath, bound_s: float, *, changes: bool) -> CommitterError:
    if changes:
        return StoreOutcomeUnknownError(
            f"no answer came within {bound_s:.0f} s, and it may have been done",
            operation=operation,
            path=path,
            next_step=LOOK_BEFORE,
        )
    return StoreUnavailableError(f"no answer came within {bound_s:.0f} s", operation=operation, path=path)

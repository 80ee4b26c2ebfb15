"""The client of a NameNode: made when it is first used, kept, and called within a bound."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator, Awaitable, Callable
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

CALL_S: Final = 60.0
"""How long one call may take: Hadoop's ``ipc.client.rpc-timeout.ms`` of 3.x is 120 s, and its ping 60 s."""

# One client for each configuration, for as long as the process lives. The client is made for that: it serves all loops,
# and cannot be closed. To let go of one stops its threads, and waits for them, holding the lock of the interpreter that
# they may wait for; in a forked child they are not even there. So none is let go of, at exit neither.
_clients: Final[dict[tuple[object, ...], AsyncClient]] = {}

os.register_at_fork(after_in_child=_clients.clear)


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
    ) -> T:
        """Sends one call; see `error_of` for the arguments and what it raises.

        A call without answer is given up after `CALL_S`: the client knows no timeouts.
        """
        client = (await self._opened())[1]
        try:
            async with asyncio.timeout(CALL_S):
                return await send(client)
        except TimeoutError:
            raise _unanswered(operation, path, changes=changes) from None
        except (Exception, BaseException) as error:
            if not _is_the_clients(error):
                raise
            raise error_of(error, operation, path, source=source, changes=changes, replaces=replaces) from None

    async def each(
        self, send: Callable[[AsyncClient], AsyncIterator[Any]], operation: str, path: StorePath
    ) -> AsyncIterator[Any]:
        """Iterates over what a call that changes nothing gives bit by bit; a bound for each."""
        entries = send((await self._opened())[1])

        def following(_client: AsyncClient) -> Awaitable[Any]:
            return anext(entries)

        while True:
            try:
                entry = await self.call(following, operation, path, changes=False)
            except StopAsyncIteration:
                return
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
        known = read_configuration(self._authority, self._config_directory)
        # One try a NameNode. More sleep in a way that fails outside of the client's own threads (hdfs-native 0.14).
        options = {**self._options, "dfs.client.failover.max.attempts": str(known.name_nodes - 1)}
        place = known.directory or None
        key = (self._authority, place, *sorted(options.items()))
        client = _clients.get(key)
        if client is None:
            client = _clients.setdefault(key, _kept(self._client(AsyncClient, options, place)))
        return os.getpid(), client, known

    def _client(self, kind: type[AsyncClient], options: dict[str, str], place: str | None) -> AsyncClient:
        url = f"hdfs://{self._authority}" if self._authority else None
        try:
            return kind(url, options, place)
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


def _unanswered(operation: str, path: StorePath, *, changes: bool) -> CommitterError:
    if changes:
        return StoreOutcomeUnknownError(
            f"no answer came within {CALL_S:.0f} s, and it may have been done",
            operation=operation,
            path=path,
            next_step=LOOK_BEFORE,
        )
    return StoreUnavailableError(f"no answer came within {CALL_S:.0f} s", operation=operation, path=path)

"""Conditional renames of files and directories on Azure Data Lake Storage Gen2."""

from __future__ import annotations

from committer.errors import (
    StoreConflictError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
)
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire
from committer.stores.azure.errors import code_of, error_of
from committer.stores.base import Store
from committer.stores.helpers import status_or_none
from committer.stores.http_answers import PageTokens


class Renames:
    """Rename calls of one container."""

    def __init__(self, wire: AdlsWire, store: Store) -> None:
        self._wire = wire
        self._store = store

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool, identity: str | None
    ) -> None:
        """Renames a file; see `Store.rename_file`. One call where `identity` is given, else two."""
        operation = "rename_file"
        expected = identity
        if expected is None:
            found = await self._store.status(source)
            if found.is_directory:
                raise StoreIsADirectoryError("the source is a directory", operation=operation, path=source)
            expected = found.identity
        answer = await self._wire.rename(operation, source, destination, replace=replace, identity=expected)
        if answer.status < 300:
            return
        code = code_of(answer)
        if code == "RenameDestinationParentPathNotFound":
            # The service may have a stale view of the source, which reading its status repairs; Hadoop does so, once
            # (AbfsClient.renamePath). The refused request had no effect, so it may be sent again.
            await status_or_none(self._store, source)
            answer = await self._wire.rename(operation, source, destination, replace=replace, identity=expected)
            if answer.status < 300:
                return
            code = code_of(answer)
        if code == "SourcePathNotFound" and await self._may_be_done(destination, expected):
            raise StoreNotFoundError(
                "the source is gone and the file exists at the destination",
                operation=operation,
                path=source,
                outcome="unknown",
                next_step="look at the destination: it holds the file that was to come there",
            )
        if code == "SourceConditionNotMet" and identity is None:
            raise StoreConflictError("the source was changed meanwhile", operation=operation, path=source)
        raise error_of(
            answer,
            operation,
            destination,
            source=source if answer.status == 403 or code.startswith("Source") else None,
            replaces=replace,
        )

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool) -> None:
        """Renames a directory; see `Store.rename_directory`. Two calls (one if `known`), one more a continuation."""
        operation = "rename_directory"
        if not known and not (await self._store.status(source)).is_directory:
            raise StoreNotADirectoryError("the source is a file", operation=operation, path=source)
        if source == destination:
            raise StoreExistsError("a directory is renamed to itself", operation=operation, path=destination)
        continuation, tokens = "", PageTokens(operation, source, changes=True)
        while True:
            answer = await self._wire.rename(
                operation, source, destination, replace=False, identity=None, continuation=continuation
            )
            if answer.status >= 300:
                break
            more = answer.headers.get("x-ms-continuation", "")
            if not more:
                return
            continuation = tokens.following(more)
        code = code_of(answer)
        if code == "SourcePathNotFound" and await status_or_none(self._store, destination) is not None:
            if known:
                raise StoreNotFoundError(
                    "the source is gone and something exists at the destination",
                    operation=operation,
                    path=source,
                    outcome="unknown",
                    next_step="look at what the destination holds",
                )
            # The source existed a moment ago: another client renamed it, or something resent this request on its way.
            raise StoreOutcomeUnknownError(
                "the source is gone and a directory exists at the destination",
                operation=operation,
                path=destination,
                next_step="look at what the directory holds",
            )
        told = source if answer.status == 403 or code.startswith("Source") else None
        raise error_of(answer, operation, destination, source=told)

    async def _may_be_done(self, destination: StorePath, identity: str | None) -> bool:
        """Returns True if the destination holds the file: this request or another one may have renamed it."""
        found = await status_or_none(self._store, destination)
        return found is not None and identity is not None and found.identity == identity

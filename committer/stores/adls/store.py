"""Store for Azure Data Lake Storage Gen2: `abfs:` and `abfss:` paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import ClassVar, Final

from committer.errors import (
    StoreConflictError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.options.storage import OptionTable
from committer.paths import StorePath
from committer.stores.adls.examine import examine, probe
from committer.stores.adls.wire import AdlsWire, place_of, status_in, statuses_in
from committer.stores.adls.writer import AdlsWriter, SmallFiles, check_parent, explain_conflict
from committer.stores.azure.access import Access
from committer.stores.azure.errors import code_of, error_of
from committer.stores.azure.options import DFS, TABLE, reached_by
from committer.stores.azure.wire import AzureStore, ends_in_period
from committer.stores.base import Capabilities, FileStatus, FileWriter
from committer.stores.examination import Finding
from committer.stores.helpers import status_or_none
from committer.stores.http import MAX_NAME_BYTES
from committer.stores.http_answers import PageTokens, content_in, range_up_to

_TRIES: Final = 5
_STATUS: Final = (("action", "getStatus"),)
_ABSENT: Final = {"If-None-Match": "*"}

_CAPABILITIES: Final = Capabilities(
    conditional_rename=True,
    implicit_parents=True,
    deletes_trees=True,
    conditional_delete=True,
    conditional_replace=True,
    examination=True,
    tree_listing=True,
    forbids_trailing_period=True,
    max_path_bytes=MAX_NAME_BYTES,
    # As Hadoop's fs.azure.io.rate.limit; an account's own default limit is 20,000 ("Scalability targets").
    default_io_rate=1000,
)


class AdlsStore(AzureStore):
    """Store for one container of an account with hierarchical namespace, over its REST interface.

    - A file's identity is its etag, which a rename keeps (`probe` verifies it). A rename carries the etag of its
      source; without `identity` the store reads the source's status first, so that it renames no directory as a
      file.
    - If the source of a rename is missing and the same file is at the destination, the request may have been sent
      twice on its way: the store raises `StoreNotFoundError` of the source with the outcome ``unknown``.
    - Deleting a file reads its status and deletes that very etag: the service's own delete would take a directory, too.
    - ``put`` is one "Put Blob" on the blob endpoint; where that is refused, it is a write and a rename, five calls.
    - The service creates missing parents. `make_directory` without `parents` checks the parent first.

    Both schemes use TLS, as in Hadoop, unless the option `endpoint` begins with ``http:``.
    """

    def _connect(self, container: str, endpoint: str, access: Access) -> None:
        blob_endpoint = endpoint.replace(".dfs.", ".blob.", 1)
        self._wire = AdlsWire(endpoint, blob_endpoint, container, access, self._http)
        self._service = AdlsWire(blob_endpoint, blob_endpoint, "", access, self._http)
        self._small = SmallFiles(self._wire, self)

    _schemes = ("abfs", "abfss")
    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> AdlsStore:
        """Makes the store for `path` from storage options, under any name that `storage_options` knows.

        Raises:
            ConfigurationError: Options contradict one another, are malformed, or would send a token without TLS.
        """
        given = dict(options)
        http_session = TABLE.take(given, "http_session")
        container, account, host = place_of(path.scheme, path.authority)
        endpoint, access = reached_by(given, account, container, host, DFS, secure=path.scheme == "abfss")
        return cls(path.scheme, path.authority, endpoint, access, http_session=http_session)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of an account with hierarchical namespace."""
        return _CAPABILITIES

    async def probe(self, directory: StorePath) -> None:
        """Checks the kind of account and tries renames in `directory`; 8 calls.

        Raises:
            UnsupportedError: The account has no hierarchical namespace, or a rename changes etags.
        """
        await probe(self, self._wire, self._checked(directory))

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> list[Finding]:
        """See `SupportsExamination.findings`."""
        return await examine(self._wire, self._service, self._checked(directory))

    async def status(self, path: StorePath) -> FileStatus:
        """Reads the status of a path."""
        answer = await self._wire.done("status", "HEAD", self._existing(path, "status"), _STATUS, changes=False)
        return status_in(answer.headers, path)

    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Lists the children, 5,000 a page."""
        return self._list("list", directory, recursive="false")

    def list_tree(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """See `SupportsTreeListing.list_tree`; 5,000 a page."""
        return self._list("list_tree", directory, recursive="true")

    async def _list(self, operation: str, directory: StorePath, *, recursive: str) -> AsyncIterator[FileStatus]:
        self._existing(directory, operation)
        name = directory.path[1:]
        continuation, tokens = "", PageTokens(operation, directory)
        while True:
            query = [("directory", name)] if name else []
            if continuation:
                query.insert(0, ("continuation", continuation))
            query += [("recursive", recursive), ("resource", "filesystem")]
            answer = await self._wire.send(operation, "GET", directory, query, changes=False, at="")
            if answer.status >= 300:
                raise error_of(answer, operation, directory, changes=False)
            for status in statuses_in(answer.body, directory, operation):
                if status.path == directory:
                    raise StoreNotADirectoryError("a file is there", operation=operation, path=directory)
                yield status
            more = answer.headers.get("x-ms-continuation", "")
            if not more:
                return
            continuation = tokens.following(more)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        headers = {"Range": range_up_to(limit)}
        answer = await self._wire.send(
            "read", "GET", self._existing(path, "read"), headers=headers, changes=False, limit=limit
        )
        told = answer.headers.get("x-ms-resource-type", "").lower() == "directory"
        if answer.status != 416 and (told or (answer.status == 409 and (await self.status(path)).is_directory)):
            raise StoreIsADirectoryError("a directory is there", operation="read", path=path)
        return content_in(answer, path, limit, error_of)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a small file; what the service acknowledged is durable."""
        self._new(path)
        return await self._small.put(path, bytes(data), exclusive=exclusive, temporary=temporary)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`; a conditional rename where "Put Blob" is refused."""
        self._new(path)
        return await self._small.put(path, bytes(data), over=seen.identity or "")

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates a file, which is empty until the writer is closed; the writer buffers 8 MiB."""
        answer = await self._wire.send("open_writer", "PUT", self._new(path), (("resource", "file"),), _ABSENT)
        if answer.status in (409, 412):
            await explain_conflict(self, "open_writer", path, exclusive=True)
        if answer.status >= 300:
            raise error_of(answer, "open_writer", path)
        return AdlsWriter(self._wire, path, answer)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Makes a directory; one call more without `parents`, or when something is there."""
        if self._new(path).path == "/":
            return False
        if not parents and path.parent.path != "/":
            await check_parent(self, path)
        answer = await self._wire.send("make_directory", "PUT", path, (("resource", "directory"),), _ABSENT)
        if answer.status < 300:
            return True
        if answer.status in (409, 412):
            found = await status_or_none(self, path)
            if found is not None and found.is_directory:
                return False
            await explain_conflict(self, "make_directory", path, exclusive=True, found=found)
        raise error_of(answer, "make_directory", path)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames a file; one call where `identity` is given, else two."""
        operation = "rename_file"
        self._existing(source, operation)
        self._new(destination)
        expected = identity
        if expected is None:
            found = await self.status(source)
            if found.is_directory:
                raise StoreIsADirectoryError("the source is a directory", operation=operation, path=source)
            expected = found.identity
        for again in (False, True):
            answer = await self._wire.rename(operation, source, destination, replace=replace, identity=expected)
            if answer.status < 300:
                return
            code = code_of(answer)
            if again or code != "RenameDestinationParentPathNotFound":
                break
            # The service may have a stale view of the source, which reading its status repairs; Hadoop does so, once
            # (AbfsClient.renamePath). The refused request had no effect, so it may be sent again.
            await status_or_none(self, source)
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

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Renames a directory; two calls, one if `known`, and one more for each continuation."""
        operation = "rename_directory"
        self._existing(source, operation)
        self._new(destination)
        if not known and not (await self.status(source)).is_directory:
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
        if code == "SourcePathNotFound" and await status_or_none(self, destination) is not None:
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

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file; two calls."""
        for _try in range(_TRIES):
            found = await status_or_none(self, path)
            if found is None:
                return False
            if found.is_directory:
                raise StoreIsADirectoryError("a directory is there", operation="delete_file", path=path)
            try:
                if await self._delete_if("delete_file", path, found.identity):
                    return True
            except StorePreconditionError:
                continue
            return False
        raise StoreConflictError("others keep replacing the file", operation="delete_file", path=path)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`."""
        if ends_in_period(self._checked(path)):
            return False
        return await self._delete_if("delete_file_if", path, identity)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory; two calls, and one more for each continuation the service gives."""
        operation = "delete_directory"
        found = await status_or_none(self, path)
        if found is None:
            return False
        if not found.is_directory:
            raise StoreNotADirectoryError("a file is there", operation=operation, path=path)
        continuation, tokens = "", PageTokens(operation, path, changes=True)
        while True:
            query = [("continuation", continuation)] if continuation else []
            if recursive:
                query.append(("paginated", "true"))
            query.append(("recursive", "true" if recursive else "false"))
            answer = await self._wire.send(operation, "DELETE", path, query)
            if answer.status == 404:
                # Another client deletes it, too; what earlier requests of this call deleted counts.
                return bool(continuation)
            if answer.status >= 300:
                raise error_of(answer, operation, path)
            more = answer.headers.get("x-ms-continuation", "")
            if not more:
                return True
            continuation = tokens.following(more)

    async def _may_be_done(self, destination: StorePath, identity: str | None) -> bool:
        """Returns True if the destination holds the file: this request or another one may have renamed it."""
        found = await status_or_none(self, destination)
        return found is not None and identity is not None and found.identity == identity

    async def _delete_if(self, operation: str, path: StorePath, identity: str | None) -> bool:
        headers = {"If-Match": f'"{identity}"'}
        answer = await self._wire.send(operation, "DELETE", path, (("recursive", "false"),), headers)
        if answer.status == 404:
            return False
        if answer.status == 412 and code_of(answer) == "ConditionNotMet":
            if await status_or_none(self, path) is None:
                return False
            raise StorePreconditionError("another file is there", operation=operation, path=path)
        if answer.status >= 300:
            raise error_of(answer, operation, path)
        return True

"""Azure's storage accounts without hierarchical namespace as a store, for `az:`, `wasb:` and `wasbs:` paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Final

import aiohttp

from committer.errors import (
    CommitterError,
    ConfigurationError,
    RecordError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.storage_options import OptionTable
from committer.stores.azure.access import Access
from committer.stores.azure.options import access_of, arguments_of, from_connection_string
from committer.stores.azure_blob.blocks import MAX_BLOCK_BYTES, MAX_BLOCKS, BlockCalls
from committer.stores.azure_blob.container import MAX_NAME_BYTES, BlobContainer
from committer.stores.azure_blob.errors import error_of
from committer.stores.azure_blob.listing import STAMP_HEADER, pages, status_in
from committer.stores.azure_blob.names import BLOB, TABLE
from committer.stores.azure_blob.options import account_of, place_of
from committer.stores.azure_blob.probe import findings_of, probe, refuse_hierarchical
from committer.stores.azure_blob.wire import BlobWire
from committer.stores.azure_blob.writer import BlobWriter
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.examination import Finding
from committer.stores.helpers import status_or_none, unseen
from committer.stores.http import HttpClient, checked_endpoint

_TRIES: Final = 5
_DELETES: Final = 32
_BLOB: Final = {"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}

_CAPABILITIES: Final = Capabilities(
    directories=False,
    atomic_file_rename=False,
    no_replace_rename=False,
    replacing_rename=False,
    atomic_directory_rename=False,
    identity_through_rename=False,
    conditional_delete=True,
    conditional_replace=True,
    block_lists=True,
    examination=True,
    forbids_trailing_period=True,
    # A name has no slash before it.
    max_path_bytes=1 + MAX_NAME_BYTES,
    max_parts=MAX_BLOCKS,
    max_part_bytes=MAX_BLOCK_BYTES,
    # As on accounts with hierarchical namespace; an account's own default limit is 20,000 ("Scalability targets").
    default_io_rate=1000,
)


class AzureBlobStore(BlockCalls, Store):
    """One container of block blobs, over its REST interface. It renames nothing: files become visible by lists of their
    blocks.

    What its signatures do not show:

    - A file's identity is its etag, which no two writes share. Who wrote a file its stamp tells, which is metadata
      (``committerattempt``) that lists of blocks are put with.
    - There are no directories. A name is one where blobs lie below it, or where another tool left a marker; markers are
      never listed, and are deleted with what is below them.
    - Deleting a file deletes its snapshots with it.

    Args:
        scheme: ``az``, ``wasb`` or ``wasbs``; all speak TLS, unless `endpoint` begins with ``http:``.
        authority: The container, or ``container@account.blob.core.windows.net``.
        account_name: The account, where the authority names none.
        endpoint: The account's blob endpoint, where it is not ``https://`` and the account's host.
        account_key: The account's key, or a reference: ``env:NAME``, ``file:PATH``.
        sas_token: A shared access signature, or a reference.
        connection_string: A connection string, or a reference; instead of the three above.
        credential: Anything with ``get_token`` (azure-identity), or an ``AzureSasCredential`` or
            ``AzureNamedKeyCredential``. Without any of these, ``DefaultAzureCredential``.
        http_session: An aiohttp session to use instead of its own.

    Raises:
        ConfigurationError: The options exclude one another, are none, or would send a token without TLS.
        InvalidPathError: The authority is not of the form above.
    """

    def __init__(
        self,
        scheme: str,
        authority: str,
        *,
        account_name: str = "",
        endpoint: str | None = None,
        account_key: str | None = None,
        sas_token: str | None = None,
        connection_string: str | None = None,
        credential: Any = None,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        container, host = place_of(scheme, authority)
        named = {"account_name": account_name or None, "connection_string": connection_string}
        account = account_of(named, host)
        options: dict[str, object] = {"account_key": account_key, "sas_token": sas_token, "credential": credential}
        if connection_string is not None:
            endpoint = from_connection_string(connection_string, account, endpoint, options, BLOB)
        self._scheme = scheme
        self._authority = authority
        self._account = account
        self._endpoint = checked_endpoint(
            endpoint or f"https://{host or f'{account}.blob.core.windows.net'}",
            "endpoint",
            "https://account.blob.core.windows.net",
        )
        self._access = access_of(account, options)
        if self._access.needs_tls and not self._endpoint.startswith("https:"):
            raise ConfigurationError(
                "a token is never sent without TLS, and the endpoint begins with http:",
                operation="open_store",
                next_step="give account_key or sas_token, or an endpoint that begins with https:",
            )
        self._http = HttpClient(session=http_session)
        wire = BlobWire(self._endpoint, self._endpoint, container, self._access, self._http)
        super().__init__(wire, BlobContainer(scheme, authority))

    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> AzureBlobStore:
        """Makes the store for `path` from ``storage_options``, by any name that `storage_options` knows.

        Raises:
            ConfigurationError: An option is unknown or has a value it cannot have, or none names the account.
        """
        container, host = place_of(path.scheme, path.authority)
        account = account_of(options, host)
        found: Any = arguments_of(options, account, container, service=BLOB)
        return cls(path.scheme, path.authority, account_name=account, **found)

    def __repr__(self) -> str:
        return f"AzureBlobStore({self._scheme}://{self._authority}, {self._endpoint}, {self._access!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # Connections belong to this process, and secrets never leave it: references to them do.
        return _make, (self._scheme, self._authority, self._account, self._endpoint, self._access)

    @property
    def scheme(self) -> str:
        """``az``, ``wasb`` or ``wasbs``."""
        return self._scheme

    @property
    def endpoint(self) -> str:
        """The account's blob endpoint: its limits are those of the account."""
        return self._endpoint

    @property
    def capabilities(self) -> Capabilities:
        """What an account without hierarchical namespace can do."""
        return _CAPABILITIES

    async def probe(self, directory: StorePath) -> None:
        """Asks what kind of account this is, and tries every condition that a commit relies on, in `directory`; 9
        calls.

        Raises:
            UnsupportedError: The account has a hierarchical namespace, or a condition does not hold here.
        """
        await refuse_hierarchical(self._wire, self._container.checked(directory))
        await probe(self, self, directory)

    async def findings(self, directory: StorePath) -> list[Finding]:
        """See `SupportsExamination.findings`."""
        return await findings_of(self._wire, self._container.checked(directory))

    async def status(self, path: StorePath) -> FileStatus:
        """Looks at a path; a file hides what lies below its name. Two calls where no file is."""
        self._container.existing(path, "status")
        if path.path != "/":
            answer = await self._wire.send("status", "HEAD", path, changes=False)
            if answer.status < 300:
                return status_in(answer.headers, path)
            if answer.status != 404:
                raise error_of(answer, "status", path, changes=False)
        async for _page in pages(self._wire, "status", path, most=1):
            return FileStatus(path, True, 0)
        raise StoreNotFoundError("nothing is there", operation="status", path=path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children, 5,000 a page; two calls where nothing is below."""
        self._container.existing(directory, "list")
        found = False
        async for page in pages(self._wire, "list", directory, delimiter="/"):
            found = True
            for status in page:
                yield status
        if found:
            return
        standing = await self._blob_at("list", directory)
        if standing is None:
            raise StoreNotFoundError("nothing is there", operation="list", path=directory)
        if not standing.is_directory:
            raise StoreNotADirectoryError("a file is there", operation="list", path=directory)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        self._container.existing(path, "read")
        headers = {"Range": f"bytes=0-{limit}"}
        answer = await self._wire.send("read", "GET", path, headers=headers, changes=False)
        if answer.status == 416:
            # What the service says of any range of an empty file.
            return b""
        if answer.status >= 300:
            raise error_of(answer, "read", path, changes=False)
        if len(answer.body) > limit:
            raise RecordError(f"a file is longer than the {limit} bytes it may have", operation="read", path=path)
        return answer.body

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Puts a file; `temporary` and `durable` are not needed: what was answered is whole, and stays."""
        return await self._put("put", self._container.new(path), data, _BLOB, exclusive=exclusive)

    async def replace_file(
        self, path: StorePath, data: bytes, *, seen: FileStatus, temporary: StorePath | None = None
    ) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`."""
        met = {**_BLOB, "If-Match": f'"{seen.identity}"'}
        return await self._put("put", self._container.new(path), data, met, exclusive=False)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Looks whether something is there; the file appears when the writer is closed, if nothing is there then.

        Up to 8 MiB are kept before they are sent: a shorter file is one put, a longer one a list of blocks.
        """
        standing = await self._blob_at("open_writer", self._container.new(path))
        if standing is not None and not standing.is_directory:
            raise StoreExistsError("something stands there", operation="open_writer", path=path)
        return BlobWriter(self, path, self._put_file)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Does nothing: there are no directories. No call."""
        self._container.new(path)
        return True

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Not here: a copy and a delete are no rename.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "this account renames no files: what looks like it copies them", operation="rename_file", path=source
        )

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Not here.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("this account has no directories to rename", operation="rename_directory", path=source)

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file."""
        return await self._delete("delete_file", self._container.checked(path))

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; a second call where another file, or none, is there."""
        operation = "delete_file_if"
        try:
            return await self._delete(operation, self._container.checked(path), {"If-Match": f'"{identity}"'})
        except StorePreconditionError:
            if await self._blob_at(operation, path) is None:
                return False
            raise

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes what lies below a name, one by one, many at a time. Else its marker, if it has one."""
        operation = "delete_directory"
        self._container.checked(path)
        place = StorePath(path.scheme, path.authority, f"{path.path.rstrip('/')}/")
        found = False
        async for page in pages(self._wire, operation, path, markers=True, most=None if recursive else 2):
            found = True
            names = [status.path for status in page]
            # Never more than what was seen: others may put something there meanwhile.
            if not recursive and names != [place]:
                raise StoreNotEmptyError("the directory has children", operation=operation, path=path)

            async def delete(name: StorePath) -> None:
                await self._delete(operation, name)

            await run_workers(names, delete, workers=_DELETES, operation=operation)
        standing = await self._blob_at(operation, path)
        if standing is not None and standing.is_directory:
            return await self._delete(operation, path) or found
        if standing is not None and not found:
            raise StoreNotADirectoryError("a file is there", operation=operation, path=path)
        return found

    async def close(self) -> None:
        """Closes the running loop's connections."""
        await self._http.close()

    async def _blob_at(self, operation: str, path: StorePath) -> FileStatus | None:
        """What the blob of that very name is; None without one. One call, none for the root."""
        if path.path == "/":
            return None
        answer = await self._wire.send(operation, "HEAD", path, changes=False)
        if answer.status == 404:
            return None
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=False)
        return status_in(answer.headers, path)

    async def _delete(self, operation: str, path: StorePath, condition: Mapping[str, str] | None = None) -> bool:
        headers = {"x-ms-delete-snapshots": "include", **(condition or {})}
        answer = await self._wire.send(operation, "DELETE", path, headers=headers)
        if answer.status < 300:
            return True
        error = error_of(answer, operation, path)
        if isinstance(error, StoreNotFoundError):
            return False
        raise error

    async def _put_file(self, path: StorePath, data: bytes, stamp: str) -> FileStatus:
        """Puts what a writer kept where nothing stands, and looks for it when the answer is lost."""
        try:
            return await self._put("close", path, data, {**_BLOB, STAMP_HEADER: stamp}, exclusive=True)
        except StoreOutcomeUnknownError as lost:
            try:
                found = await status_or_none(self, path)
            except CommitterError as hidden:
                # Never as what it is: a writer that is told that nothing was done puts the file again.
                raise unseen(lost, hidden, operation="close", path=path) from lost
            if found is None or (found.stamp, found.size) != (stamp, len(data)):
                raise
            return found

    async def _put(
        self, operation: str, path: StorePath, data: bytes, headers: Mapping[str, str], *, exclusive: bool
    ) -> FileStatus:
        if exclusive:
            headers = {**headers, "If-None-Match": "*"}
        answer = await self._wire.done(operation, "PUT", path, (), headers, data=data, exclusive=exclusive)
        status = status_in(answer.headers, path, size=len(data))
        stamp = headers.get(STAMP_HEADER)
        return FileStatus(path, False, len(data), status.modified, status.identity, stamp=stamp)


def _make(scheme: str, authority: str, account: str, endpoint: str, access: Access) -> AzureBlobStore:
    return AzureBlobStore(scheme, authority, account_name=account, endpoint=endpoint, credential=access)

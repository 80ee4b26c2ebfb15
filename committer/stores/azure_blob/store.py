"""Store for Azure's storage accounts without hierarchical namespace: `az:`, `wasb:` and `wasbs:` paths.

Hadoop's `wasb:` file system and other tools mark a directory by an empty blob with the metadata
``hdi_isfolder``, under its name with or without a slash. Such a marker is not a file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePartsError,
    StorePermissionError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.options.storage import OptionTable, StorageOption, refused
from committer.paths import StorePath
from committer.stores.azure.access import Access
from committer.stores.azure.errors import code_of
from committer.stores.azure.errors import error_of as shared_error_of
from committer.stores.azure.options import TABLE as ADLS
from committer.stores.azure.options import Service, parse_connection_string, reached_by
from committer.stores.azure.wire import AzureStore, AzureWire
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.examination import Finding
from committer.stores.helpers import bytes_of, finish_block_list
from committer.stores.http import MAX_NAME_BYTES, Answer, Body
from committer.stores.http_answers import Refusal, content_in, moment_of, parsed, range_up_to, texts_in
from committer.stores.object_store import ObjectStore, Page, directory_prefix, odd_status
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.uploads import BLOCK_LISTS, SupportsBlockLists, UncommittedBlock, check_length, check_stamp

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# "Put Block", "Put Block List": a missing block, an id of another length than others, too many blocks.
_PARTS: Final = frozenset({"InvalidBlockList", "InvalidBlobOrBlock", "InvalidBlockId", "BlockListTooLong"})
_TOO_MANY: Final = frozenset({"BlockCountExceedsLimit", "UncommittedBlockCountExceedsLimit"})
_KEPT: Final = frozenset({"BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"})


def error_of(
    answer: Answer, operation: str, path: StorePath, *, changes: bool = True, exclusive: bool = False
) -> CommitterError:
    """Maps a refusal (status 300 or more) to an error; `exclusive` says that the request required no blob there."""
    code = code_of(answer)
    refusal = Refusal(answer.status, code, answer.headers.get("x-ms-request-id", ""), operation, path)
    if code in _PARTS:
        what = "blocks with ids of another length wait there" if operation == "put_block" else "a block is not there"
        return refusal.as_error(StorePartsError, what)
    if code in _TOO_MANY:
        return refusal.as_error(StorePartsError, "there are too many blocks")
    if answer.status == 413:
        return refusal.as_error(ConfigurationError, "the service takes no body that long", "set multipart_size lower")
    if code in _KEPT:
        return refusal.as_error(
            StorePermissionError,
            "the container does not let blobs be changed or deleted",
            "write to a container without a policy of immutability: a commit replaces and deletes records of its own",
        )
    if code == "InvalidBlobType":
        return refusal.as_error(
            StoreConflictError, "a blob of another type is there", "delete it, or choose another name"
        )
    unmet = answer.status == 412 and not code.startswith("Lease")
    if code == "BlobAlreadyExists" or (exclusive and unmet):
        return refusal.as_error(StoreExistsError, "something exists there")
    if unmet:
        return refusal.as_error(StorePreconditionError, "another file is there, or none")
    return shared_error_of(answer, operation, path, changes=changes)


STAMP: Final = "committerattempt"
STAMP_HEADER: Final = f"x-ms-meta-{STAMP}"
_MARKER: Final = "hdi_isfolder"


def status_in(headers: Mapping[str, str], path: StorePath, *, size: int | None = None) -> FileStatus:
    """Builds a status from response headers, a directory's for a marker; `size` is for the response to a write."""
    if headers.get(f"x-ms-meta-{_MARKER}", "").lower() == "true":
        return FileStatus(path, True, 0)
    return FileStatus(
        path,
        False,
        int(headers.get("Content-Length", "0")) if size is None else size,
        moment_of(headers.get("Last-Modified", "")),
        headers.get("ETag", "").strip('"') or None,
        stamp=headers.get(STAMP_HEADER),
    )


def page_in(body: bytes, operation: str, directory: StorePath) -> Page:
    """Reads a page of "List Blobs"."""
    page = parsed(body, "EnumerationResults", operation, directory)
    entries = page.find("Blobs")
    if entries is None:
        return Page((), (), page.findtext("NextMarker") or None)
    blobs = [_blob(blob, directory) for blob in entries.iterfind("Blob")]
    below = [one.findtext("Name", "") for one in entries.iterfind("BlobPrefix")]
    return Page(blobs, below, page.findtext("NextMarker") or None)


def _blob(blob: Element, directory: StorePath) -> FileStatus:
    path = StorePath(directory.scheme, directory.authority, f"/{blob.findtext('Name', '')}")
    metadata, properties = blob.find("Metadata"), blob.find("Properties")
    described = texts_in(metadata) if metadata is not None else {}
    if described.get(_MARKER, described.get("Hdi_isfolder", "")).lower() == "true":
        return FileStatus(path, True, 0)
    told = texts_in(properties) if properties is not None else {}
    return FileStatus(
        path,
        False,
        int(told.get("Content-Length", "0")),
        moment_of(told.get("Last-Modified", "")),
        (told.get("Etag") or told.get("ETag") or "").strip('"') or None,
    )


MAX_BLOCKS: Final = 50_000
MAX_BLOCK_BYTES: Final = 4000 << 20
_MAX_ID_BYTES: Final = 64


def _list_of(block_ids: Sequence[str]) -> bytes:
    # Not `Latest`: a second, delayed list could find the blocks of the file that the first one made.
    blocks = "".join([f"<Uncommitted>{_encoded(block_id)}</Uncommitted>" for block_id in block_ids])
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()


def _encoded(block_id: str) -> str:
    return base64.b64encode(block_id.encode()).decode()


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        # The id of another program.
        return text


class BlobWriter(PartsWriter[str]):
    """Writer that sends blocks and then their list; the service drops abandoned blocks after a week."""

    # A list takes 50,000 blocks.
    parts_of_one_length = 5000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        self._token = current_runtime().nonce(16)
        super().__init__(store, path, f"writer-{self._token}", put_file)
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)

    def _has_begun(self) -> bool:
        return bool(self._parts)

    async def _send(self, number: int, data: bytes) -> str:
        block_id = f"{self._token}-{number:05d}"
        await self._blocks.put_block(self._path, block_id, data)
        return block_id

    async def _made_of_parts(self) -> str | None:
        return await finish_block_list(
            self._store, self._path, self._parts, stamp=self._stamp, size=self._size, exclusive=True
        )


_MEANINGS: Final = {
    "endpoint": "the account's blob endpoint, where it is not `https://ACCOUNT.blob.core.windows.net`, or what follows"
    " the `@` in the path: a private link, the emulator",
    "client": "a `BlobServiceClient` or `ContainerClient` of `azure-storage-blob`, blocking or not: its endpoint and"
    " its credential",
    "account_name": "the account, of a path `az://CONTAINER/PATH`, which names none; of other paths another one is"
    " refused",
}


def _described(option: StorageOption) -> StorageOption:
    return replace(option, meaning=_MEANINGS.get(option.name, option.meaning))


TABLE: Final = replace(ADLS, store="Azure Blob Storage", options=tuple(map(_described, ADLS.options)))

BLOB: Final = Service("blob", TABLE, "BlobServiceClient", "ContainerClient", "container_name", "azure-storage-blob")


def place_of(scheme: str, authority: str) -> tuple[str, str]:
    """Splits a URI's authority into container and host; the host is empty if it names the container alone."""
    container, at, host = authority.partition("@")
    if container and (host if at else scheme == "az"):
        return container, host
    raise InvalidPathError(
        f"{scheme}://{authority} names no container and account",
        next_step="write az://container/path and give account_name, or "
        "wasbs://container@account.blob.core.windows.net/path",
    )


def account_of(options: Mapping[str, object], host: str) -> str:
    """Returns the account named by the path's host, else by the options; may block to read a file."""
    if host:
        return host.partition(".")[0]
    given = TABLE.texts({key: options[key] for key in TABLE.spelled(options).values()})
    account: str = given.get("account_name", "")
    if not account and "connection_string" in given:
        account = parse_connection_string(given["connection_string"]).get("accountname", "")
    account = account or str(getattr(given.get("client"), "account_name", "") or "")
    if not account:
        raise refused(
            "the path names a container and no account",
            "give account_name, or write wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/PATH",
        )
    return account


_STAMP: Final = "committer-probe"
_NO_ETAG: Final = "0x0"
_KIND: Final = "kind of account"
HIERARCHICAL: Final = "this storage account has a hierarchical namespace: its directories are real, and it renames them"
HIERARCHICAL_STEP: Final = "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def _is_hierarchical(account: Mapping[str, str]) -> bool:
    return account.get("x-ms-is-hns-enabled", "").lower() == "true"


async def probe(store: Store, blocks: SupportsBlockLists, directory: StorePath) -> None:
    """Tries each condition on a probe file and deletes it; raises `UnsupportedError` if one does not hold."""
    path = directory / f".probe-{current_runtime().nonce()}"
    try:
        first = await store.put(path, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(path, b"other", exclusive=True)
            raise _unsupported("lets a put replace what it was told not to replace (If-None-Match: *)", path)
        await blocks.put_block(path, "probe", b"stamped")
        with suppress(StoreExistsError):
            await blocks.put_block_list(path, ["probe"], stamp=_STAMP, exclusive=True)
            raise _unsupported("lets a list replace what it was told not to replace (If-None-Match: *)", path)
        with suppress(StorePreconditionError):
            await blocks.put_block_list(path, ["probe"], stamp=_STAMP, identity=_NO_ETAG)
            raise _unsupported("lets a list replace another file than it was told to (If-Match)", path)
        await blocks.put_block_list(path, ["probe"], stamp=_STAMP, identity=first.identity)
        found = await store.status(path)
        if (found.stamp, found.size) != (_STAMP, 7):
            raise _unsupported("does not keep the metadata that a list is put with", path)
    finally:
        with suppress(StoreError):
            await store.delete_file(path)


def _unsupported(what: str, path: StorePath) -> UnsupportedError:
    return UnsupportedError(
        f"this service {what}, so nothing keeps jobs from destroying each other's files",
        operation="probe",
        path=path.parent,
        next_step="write to an account of Azure's",
    )


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
    # A name lacks the path's leading slash.
    max_path_bytes=1 + MAX_NAME_BYTES,
    max_parts=MAX_BLOCKS,
    max_part_bytes=MAX_BLOCK_BYTES,
    # As on accounts with hierarchical namespace; an account's own default limit is 20,000 ("Scalability targets").
    default_io_rate=1000,
)


class AzureBlobStore(AzureStore, ObjectStore):
    """Store for one container of block blobs, over REST; block lists make files visible, nothing is renamed.

    - A file's identity is its etag, which no two writes share. Its stamp, which names its writer, is metadata
      (``committerattempt``) that is sent with the block list.
    - There are no directories. A name is one if blobs lie below it, or if another tool left a marker; markers are
      never listed, and are deleted with the blobs below them.
    - Deleting a file deletes its snapshots, too.

    All schemes use TLS, unless the option `endpoint` begins with ``http:``.
    """

    def _connect(self, container: str, endpoint: str, access: Access) -> None:
        self._wire = AzureWire(endpoint, endpoint, container, access, self._http, error_of)

    _schemes = ("az", "wasb", "wasbs")
    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> AzureBlobStore:
        """Makes the store for `path` from storage options, under any name that `storage_options` knows.

        Raises:
            ConfigurationError: Options contradict one another, are malformed, or would send a token without TLS.
        """
        given = dict(options)
        http_session = TABLE.take(given, "http_session")
        container, host = place_of(path.scheme, path.authority)
        account = account_of(given, host)
        host = host or f"{account}.blob.core.windows.net"
        endpoint, access = reached_by(given, account, container, host, BLOB)
        return cls(path.scheme, path.authority, endpoint, access, http_session=http_session)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of an account without hierarchical namespace."""
        return _CAPABILITIES

    async def probe(self, directory: StorePath) -> None:
        """Checks the kind of account and tries every condition that a commit needs, in `directory`; 9 calls.

        Raises:
            UnsupportedError: The account has a hierarchical namespace, or a condition does not hold.
        """
        if _is_hierarchical(await self._account(self._checked(directory))):
            raise UnsupportedError(HIERARCHICAL, operation="probe", path=directory, next_step=HIERARCHICAL_STEP)
        await probe(self, self, directory)

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> list[Finding]:
        """See `SupportsExamination.findings`; one call."""
        told = await self._account(self._checked(directory))
        kind, sku = told.get("x-ms-account-kind"), told.get("x-ms-sku-name")
        if kind is None:
            return [Finding(_KIND, "skipped", "the credentials may not ask for it")]
        if _is_hierarchical(told):
            return [Finding(_KIND, "failed", HIERARCHICAL, HIERARCHICAL_STEP)]
        return [Finding(_KIND, "ok", f"{kind}, {sku}; hierarchical namespace off")]

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        headers = {"Range": range_up_to(limit)}
        answer = await self._wire.send(
            "read", "GET", self._existing(path, "read"), headers=headers, changes=False, limit=limit
        )
        return content_in(answer, path, limit, error_of)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`."""
        met = {**_BLOB, "If-Match": f'"{seen.identity}"'}
        return await self._put("put", self._new(path), data, met, exclusive=False)

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """See `SupportsBlockLists.put_block`."""
        self._new(path)
        body: Body = bytes_of(data)
        if not (0 < len(block_id) <= _MAX_ID_BYTES and block_id.isascii()):
            raise ConfigurationError(f"no block can have the id {block_id!r}", operation="put_block", path=path)
        if not len(body):
            raise ConfigurationError("a block cannot be empty", operation="put_block", path=path)
        check_length(len(body), MAX_BLOCK_BYTES, "put_block", path)
        query = (("blockid", _encoded(block_id)), ("comp", "block"))
        await self._wire.done("put_block", "PUT", path, query, data=body)

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """See `SupportsBlockLists.put_block_list`."""
        self._new(path)
        check_stamp(stamp, "put_block_list", path)
        if exclusive and identity is not None:
            raise ConfigurationError("two conditions that exclude each other", operation="put_block_list", path=path)
        headers = {
            "Content-Type": "application/xml",
            STAMP_HEADER: stamp,
            "x-ms-blob-content-type": "application/octet-stream",
        }
        if exclusive:
            headers["If-None-Match"] = "*"
        if identity is not None:
            headers["If-Match"] = f'"{identity}"'
        query = (("comp", "blocklist"),)
        answer = await self._wire.send("put_block_list", "PUT", path, query, headers, data=_list_of(block_ids))
        if answer.status >= 300:
            error = error_of(answer, "put_block_list", path, exclusive=exclusive)
            if isinstance(error, StoreNotFoundError):
                # For a condition on a missing blob the service may answer 404 or 412.
                raise StorePreconditionError(error.message, operation="put_block_list", path=path) from error
            raise error
        return answer.headers.get("ETag", "").strip('"') or None

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """See `SupportsBlockLists.list_uncommitted_blocks`."""
        operation = "list_uncommitted_blocks"
        query = (("blocklisttype", "uncommitted"), ("comp", "blocklist"))
        try:
            answer = await self._wire.done(operation, "GET", self._existing(path, operation), query, changes=False)
        except StoreNotFoundError:
            return []
        waiting = parsed(answer.body, "BlockList", operation, path).find("UncommittedBlocks")
        blocks = waiting.iterfind("Block") if waiting is not None else ()
        return [UncommittedBlock(_decoded(one.findtext("Name", "")), int(one.findtext("Size") or 0)) for one in blocks]

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file."""
        return await self._delete("delete_file", self._checked(path))

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; a second call if another file, or none, is there."""
        operation = "delete_file_if"
        try:
            return await self._delete(operation, self._checked(path), {"If-Match": f'"{identity}"'})
        except StorePreconditionError:
            if await self._object_at(operation, path) is None:
                return False
            raise

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes the blobs below a name, many at a time, or else the directory marker."""
        operation = "delete_directory"
        found = await self._delete_below(self._checked(path), recursive=recursive)
        # A marker can have the directory's name with or without a slash.
        standing = await self._object_at(operation, path)
        if standing is not None and standing.is_directory:
            return await self._delete(operation, path) or found
        if standing is not None and not found:
            raise StoreNotADirectoryError("a file is there", operation=operation, path=path)
        return found

    async def _account(self, directory: StorePath) -> Mapping[str, str]:
        """Returns the headers that describe the account; none if it may not be asked for them."""
        query = (("comp", "properties"), ("restype", "account"))
        answer = await self._wire.send("probe", "GET", directory, query, changes=False, at="")
        return answer.headers if answer.status < 300 else {}

    async def _page(
        self, operation: str, directory: StorePath, *, delimiter: str, most: int | None, token: str | None
    ) -> Page:
        prefix = directory_prefix(directory)
        query = [("comp", "list"), ("include", "metadata"), ("prefix", prefix), ("restype", "container")]
        if delimiter:
            query.append(("delimiter", delimiter))
        if token is not None:
            query.append(("marker", token))
        if most is not None:
            query.append(("maxresults", str(most)))
        answer = await self._wire.done(operation, "GET", directory, sorted(query), changes=False, at="")
        return page_in(answer.body, operation, directory)

    def _odd(self, directory: StorePath, name: str) -> FileStatus | None:
        scheme, _, place = self._wire.container_url.partition("://")
        odd = odd_status(StorePath(scheme, place, directory.path), name, "azcopy remove", scheme)
        if odd is None:
            return None
        return msgspec.structs.replace(odd, path=StorePath(directory.scheme, directory.authority, f"/{name}"))

    async def _object_at(self, operation: str, path: StorePath) -> FileStatus | None:
        if path.path == "/":
            return None
        answer = await self._wire.send(operation, "HEAD", path, changes=False)
        if answer.status == 404:
            return None
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=False)
        return status_in(answer.headers, path)

    async def _delete_objects(self, operation: str, paths: Sequence[StorePath]) -> None:
        async def delete(path: StorePath) -> None:
            await self._delete(operation, path)

        await run_workers(paths, delete, workers=_DELETES, operation=operation)

    async def _delete(self, operation: str, path: StorePath, condition: Mapping[str, str] | None = None) -> bool:
        headers = {"x-ms-delete-snapshots": "include", **(condition or {})}
        answer = await self._wire.send(operation, "DELETE", path, headers=headers)
        if answer.status < 300:
            return True
        error = error_of(answer, operation, path)
        if isinstance(error, StoreNotFoundError):
            return False
        raise error

    async def _put_small(self, path: StorePath, data: bytes, *, exclusive: bool) -> FileStatus:
        return await self._put("put", path, data, _BLOB, exclusive=exclusive)

    def _writer(self, path: StorePath) -> FileWriter:
        return BlobWriter(self, path, self._put_file)

    async def _put_file(self, path: StorePath, data: bytes, stamp: str) -> FileStatus:
        return await self._put("close", path, data, {**_BLOB, STAMP_HEADER: stamp}, exclusive=True)

    async def _put(
        self, operation: str, path: StorePath, data: bytes, headers: Mapping[str, str], *, exclusive: bool
    ) -> FileStatus:
        if exclusive:
            headers = {**headers, "If-None-Match": "*"}
        answer = await self._wire.send(operation, "PUT", path, (), headers, data=data)
        if answer.status >= 300:
            raise error_of(answer, operation, path, exclusive=exclusive)
        status = status_in(answer.headers, path, size=len(data))
        return msgspec.structs.replace(status, stamp=headers.get(STAMP_HEADER))

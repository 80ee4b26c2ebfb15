"""Requests to a filesystem of Azure Data Lake Storage Gen2, and the statuses in its responses."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

import msgspec

from committer.errors import InvalidPathError
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.stores.azure.wire import NOTHING, AzureWire
from committer.stores.base import FileStatus
from committer.stores.http import Answer
from committer.stores.http_answers import moment_of, unreadable


class AdlsWire(AzureWire):
    """Client of a filesystem's DFS and blob endpoints."""

    def rename(
        self,
        operation: str,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool,
        identity: str | None,
        over: str | None = None,
        continuation: str = "",
    ) -> Awaitable[Answer]:
        """Sends "Path - Create" with a rename source; `over` is the etag that the destination must have."""
        headers = {}
        if not replace:
            headers["If-None-Match"] = "*"
        if over is not None:
            headers["If-Match"] = f'"{over}"'
        if identity is not None:
            headers["x-ms-source-if-match"] = f'"{identity}"'
        query = (("continuation", continuation),) if continuation else NOTHING
        return self.send(operation, "PUT", destination, query, headers, source=source)


class _Entry(msgspec.Struct, gc=False):
    # The service writes numbers and booleans as strings; some versions did not.
    name: str
    is_directory: str | bool = msgspec.field(name="isDirectory", default=False)
    content_length: str | int = msgspec.field(name="contentLength", default=0)
    last_modified: str = msgspec.field(name="lastModified", default="")
    etag: str = ""


class _Page(msgspec.Struct, gc=False):
    paths: list[_Entry] = []


_decode = msgspec.json.Decoder(_Page).decode


def statuses_in(body: bytes, directory: StorePath, operation: str) -> list[FileStatus]:
    """Decodes a page of "Path - List"."""
    scheme, authority = directory.scheme, directory.authority
    try:
        return [
            _status(
                StorePath(scheme, authority, f"/{entry.name}"),
                str(entry.is_directory).lower() == "true",
                int(entry.content_length),
                entry.last_modified,
                entry.etag,
            )
            for entry in _decode(body).paths
        ]
    except (*UNDECODABLE, ValueError):
        raise unreadable(operation, directory, "a page of a listing") from None


def status_in(headers: Mapping[str, str], path: StorePath, *, size: int | None = None) -> FileStatus:
    """Builds a status from response headers; `size` is for the response to a write, which has no length."""
    return _status(
        path,
        headers.get("x-ms-resource-type", "").lower() == "directory",
        int(headers.get("Content-Length", "0")) if size is None else size,
        headers.get("Last-Modified", ""),
        headers.get("ETag", ""),
    )


def _status(path: StorePath, is_directory: bool, size: int, modified: str, etag: str) -> FileStatus:
    if is_directory:
        return FileStatus(path, True, 0, moment_of(modified))
    return FileStatus(path, False, size, moment_of(modified), etag.strip('"') or None)


def place_of(scheme: str, authority: str) -> tuple[str, str, str]:
    """Splits a URI's authority into container, account name and host."""
    container, at, host = authority.partition("@")
    if not (container and at and host):
        raise InvalidPathError(
            f"{scheme}://{authority} names no container and account",
            next_step="write abfss://container@account.dfs.core.windows.net/path",
        )
    return container, host.partition(".")[0], host

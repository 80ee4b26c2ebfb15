"""Requests to a bucket of S3, and the statuses in its responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

from committer.errors import StoreIsADirectoryError
from committer.flow.runtime import current_runtime
from committer.logs import current_audit
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.http import USER_AGENT, Answer, Body, HttpClient
from committer.stores.http_answers import moment_of, parsed, texts_in
from committer.stores.object_store import Page
from committer.stores.s3.access import NOTHING_SHA256, S3Access, sha256_of
from committer.stores.s3.errors import ENDED, code_of, error_of
from committer.stores.s3.options import host_of, is_host_name
from committer.stores.s3.xml import element_in, key_in, moment_in

_NO_QUERY: Final[Sequence[tuple[str, str]]] = ()

# Matches nearly all keys; `quote` is slow for keys with an equals sign, as partitions have.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.\-~/=]*").fullmatch

_REGION: Final = re.compile("[a-z0-9-]{1,40}")

# Statuses of requests signed with expired keys or for the wrong region.
_MENDABLE: Final = (301, 307, 400, 401, 403)

# Longer bodies are hashed in a thread: a part of 64 MiB takes some 50 ms.
_LONG_BODY_BYTES: Final = 256 << 10


class S3Wire:
    """Client of a bucket that makes, signs and sends requests, each once; `endpoint` None means AWS."""

    def __init__(self, bucket: str, endpoint: str | None, style: str, access: S3Access, http: HttpClient) -> None:
        self._bucket = bucket
        self.endpoint: str | None = endpoint
        self._virtual = style == "virtual" or (style == "auto" and endpoint is None and is_host_name(bucket))
        self._access = access
        self._http = http
        self._place: tuple[str, str, str] | None = None

    async def send(
        self,
        operation: str,
        method: str,
        path: StorePath,
        query: Sequence[tuple[str, str]] = _NO_QUERY,
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        key: str | None = None,
        digest: str | None = None,
        limit: int | None = None,
    ) -> Answer:
        """Sends a request and returns the response, whatever its status.

        Args:
            query: Parameters, sorted by name.
            headers: Further headers; names in lower case.
            key: Key in the URL if it differs from `path`; empty for the bucket itself.
            digest: SHA-256 to sign instead of the body's own.

        Raises:
            StoreIsADirectoryError: `path` is the bucket, which PUT and DELETE would create and delete.
        """
        if key is None and path.path == "/":
            raise StoreIsADirectoryError("the bucket itself is no file", operation=operation, path=path)
        if data is None:
            digest = NOTHING_SHA256
        elif digest is None:
            if len(data) < _LONG_BODY_BYTES:
                digest = sha256_of(data)
            else:
                digest = await current_runtime().run_blocking(lambda: sha256_of(data))
        key = path.path[1:] if key is None else key
        parameters = "&".join([f"{name}={quote(value, safe='~')}" for name, value in query])
        access = self._access
        for is_last in (False, True):
            if not access.ready:
                await access.prepare()
            generation = access.generation
            origin, host, prefix = self._place or self._find_place()
            raw = prefix + (key.replace("=", "%3D") if _PLAIN(key) else quote(key, safe="/~"))
            sent = access.sign(method, host, raw, parameters, dict(headers or ()), digest)
            sent["user-agent"] = USER_AGENT
            audit = current_audit()
            if audit:
                sent["referer"] = _audit_text(operation, audit.get("ji", ""), audit.get("ta", ""), audit.get("st", ""))
            url = f"{origin}{raw}?{parameters}" if parameters else origin + raw
            answer = await self._http.send(
                method, url, sent, operation=operation, path=path, changes=changes, data=data, limit=limit
            )
            # A refused request had no effect, so it may be sent again.
            if is_last or answer.status < 300 or not self._mended(answer, generation):
                break
        return answer

    async def done(
        self,
        operation: str,
        method: str,
        path: StorePath,
        query: Sequence[tuple[str, str]] = _NO_QUERY,
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        key: str | None = None,
        upload: bool = False,
    ) -> Answer:
        """Sends a request and raises the store error of a refusal."""
        answer = await self.send(operation, method, path, query, headers, data=data, changes=changes, key=key)
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=changes, upload=upload)
        return answer

    def _find_place(self) -> tuple[str, str, str]:
        """Returns the origin, the ``Host`` header and the URL's path before the key."""
        endpoint = self.endpoint
        if endpoint is None:
            region = self._access.region
            suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
            endpoint = f"https://s3.{region}.{suffix}"
        parts = urlsplit(endpoint)
        bucket = quote(self._bucket, safe="~")
        netloc = f"{bucket}.{parts.netloc}" if self._virtual else parts.netloc
        origin = f"{parts.scheme}://{netloc}"
        prefix = f"{parts.path}/" if self._virtual else f"{parts.path}/{bucket}/"
        self._place = origin, host_of(origin), prefix
        return self._place

    def _mended(self, answer: Answer, generation: int) -> bool:
        """Returns True if a retry may succeed: the region or keys were corrected, here or by a concurrent request."""
        if answer.status not in _MENDABLE:
            return False
        if generation != self._access.generation:
            return True
        if answer.status in (301, 307, 400):
            region = answer.headers.get("x-amz-bucket-region") or element_in(answer.body[:4096], "Region")
        else:
            region = ""
        # Checked, because it becomes part of a host name.
        if _REGION.fullmatch(region) and region != self._access.region:
            self._access.moved(region)
            self._place = None
            return True
        if answer.status not in (400, 401, 403):
            return False
        code = code_of(answer)
        # A response to HEAD has no code.
        return (code in ENDED or not code) and self._access.refused()


@lru_cache(maxsize=1024)
def _audit_text(operation: str, job: str, task: str, stage: str) -> str:
    # For server access logs; a URL that leads nowhere, like that of Hadoop's S3A ("Auditing").
    keys = "&".join(
        f"{key}={quote(value[:128], safe='~')[:256]}"
        for key, value in (("ji", job), ("op", operation), ("st", stage), ("ta", task))
        if value
    )
    return f"https://audit.example.org/lake-committer/1/?{keys}"


STAMP_HEADER: Final = "x-amz-meta-committer-attempt"


def status_in(headers: Mapping[str, str], path: StorePath) -> FileStatus:
    """Builds a status from response headers."""
    return FileStatus(
        path,
        False,
        int(headers.get("Content-Length", "0")),
        moment_of(headers.get("Last-Modified", "")),
        etag_in(headers),
        stamp=headers.get(STAMP_HEADER) or None,
    )


def etag_in(headers: Mapping[str, str]) -> str | None:
    """Returns the etag without its quotes."""
    return headers.get("ETag", "").strip('"') or None


def page_in(body: bytes, operation: str, directory: StorePath) -> Page:
    """Reads a page of "ListObjectsV2"."""
    page = parsed(body, "ListBucketResult", operation, directory)
    encoding = page.findtext("EncodingType", "")
    objects = [_object(texts_in(entry), encoding, directory) for entry in page.iterfind("Contents")]
    below = [key_in(one.findtext("Prefix", ""), encoding) for one in page.iterfind("CommonPrefixes")]
    more = page.findtext("NextContinuationToken", "") if page.findtext("IsTruncated") == "true" else None
    return Page(objects, below, more)


def _object(told: Mapping[str, str], encoding: str, directory: StorePath) -> FileStatus:
    return FileStatus(
        StorePath(directory.scheme, directory.authority, f"/{key_in(told.get('Key', ''), encoding)}"),
        False,
        int(told.get("Size", "0")),
        moment_in(told.get("LastModified", "")),
        told.get("ETag", "").strip('"') or None,
    )


async def object_at(wire: S3Wire, operation: str, path: StorePath) -> FileStatus | None:
    """Reads the status of an object; None if there is none. One call, none for the root."""
    if path.path == "/":
        return None
    answer = await wire.send(operation, "HEAD", path, changes=False)
    if answer.status == 404:
        return None
    if answer.status >= 300:
        raise error_of(answer, operation, path, changes=False)
    return status_in(answer.headers, path)

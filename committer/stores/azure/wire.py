"""Requests to a container of an Azure storage account."""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp

from committer.errors import InvalidPathError, StoreNotFoundError
from committer.flow.runtime import current_runtime
from committer.logs import current_audit
from committer.paths import StorePath
from committer.stores.azure.access import Access, Query
from committer.stores.azure.errors import error_of
from committer.stores.http import USER_AGENT, Answer, Body, HttpClient, HttpStore
from committer.stores.http_answers import ErrorOf

# The first version with `paginated`, without which deleting a large tree with a token fails after some thousand
# paths ("Path - Delete").
_VERSION: Final = "2023-08-03"
NOTHING: Final[Query] = ()

# Matches nearly all paths, twice as fast as `quote` does.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.\-~/=]*").fullmatch


class AzureWire:
    """Client of a container that makes, signs and sends requests, each once; endpoints have no trailing slash.

    Attributes:
        container_url: URL of the container, without a signature.
    """

    def __init__(
        self,
        endpoint: str,
        blob_endpoint: str,
        filesystem: str,
        access: Access,
        http: HttpClient,
        refusal: ErrorOf = error_of,
    ) -> None:
        self._places = [self._split(endpoint, filesystem), self._split(blob_endpoint, filesystem)]
        self.container_url: str = "".join(self._places[0])
        self._access = access
        self._http = http
        self._filesystem = filesystem
        self._error_of = refusal
        # A counter makes request ids unique: a random id per request would cost a tenth of the request.
        self._prefix = current_runtime().nonce(8)
        self._numbers = itertools.count(1)

    @staticmethod
    def _split(endpoint: str, filesystem: str) -> tuple[str, str]:
        parts = urlsplit(endpoint)
        return f"{parts.scheme}://{parts.netloc}", f"{parts.path}/{filesystem}"

    async def send(
        self,
        operation: str,
        method: str,
        path: StorePath,
        query: Query = NOTHING,
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        blob: bool = False,
        changes: bool = True,
        at: str | None = None,
        source: StorePath | None = None,
        limit: int | None = None,
    ) -> Answer:
        """Sends a request and returns the response, whatever its status.

        Args:
            query: Parameters, sorted by name.
            blob: Whether to use the blob endpoint.
            at: Path in the URL if it differs from `path`; empty for the container itself.
            source: Source of a rename to `path`.
        """
        access, http = self._access, self._http
        origin, prefix = self._places[blob]
        raw = prefix + encoded(path.path if at is None else at)
        parameters = [f"{name}={quote(value, safe='')}" for name, value in query]
        for is_last in (False, True):
            if not access.ready:
                await access.prepare()
            sent = {
                "User-Agent": USER_AGENT,
                "x-ms-client-request-id": f"{self._prefix}-{next(self._numbers):x}{_audit()}",
                "x-ms-version": _VERSION,
            }
            if source is not None:
                # The source is a URL, too, and needs the signature.
                place = f"/{self._filesystem}{encoded(source.path)}"
                sent["x-ms-rename-source"] = f"{place}?{access.signature}" if access.signature else place
            if headers is not None:
                sent.update(headers)
            access.authorise(method, raw, query, sent, 0 if data is None else len(data))
            asked = [*parameters, access.signature] if access.signature else parameters
            url = f"{origin}{raw}?{'&'.join(asked)}" if asked else origin + raw
            answer = await http.send(
                method, url, sent, operation=operation, path=path, changes=changes, data=data, limit=limit
            )
            # A token can expire early. A 401 has no effect, so the request may be sent again.
            if is_last or answer.status != 401 or not access.refused():
                break
        return answer

    async def done(
        self,
        operation: str,
        method: str,
        path: StorePath,
        query: Query = NOTHING,
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        at: str | None = None,
    ) -> Answer:
        """Sends a request and raises the error of a refusal."""
        answer = await self.send(operation, method, path, query, headers, data=data, changes=changes, at=at)
        if answer.status >= 300:
            raise self._error_of(answer, operation, path, changes=changes)
        return answer


def encoded(path: str) -> str:
    """Percent-encodes a path; equals signs (frequent in partition names) stay, as in Hadoop's URLs."""
    return path if _PLAIN(path) else quote(path, safe="/=")


def _audit() -> str:
    keys = current_audit()
    return _audit_text(keys.get("ji", ""), keys.get("ta", ""), keys.get("st", "")) if keys else ""


@lru_cache(maxsize=1024)
def _audit_text(job: str, task: str, stage: str) -> str:
    # Part of a header of at most 1 KiB, in which the service keeps printable ASCII only.
    return "".join(
        f";{key}={quote(value[:128], safe='@+~')[:256]}"
        for key, value in (("ji", job), ("ta", task), ("st", stage))
        if value
    )


class AzureStore(HttpStore):
    """Base of stores that are a container of an account; checks the paths that they are given.

    A subclass makes the clients of its container in `_connect`.

    Args:
        authority: The container, with the host that the URI names.
        endpoint: The service's endpoint of the account.
        http_session: An aiohttp session to use instead of an own one.
    """

    def __init__(
        self,
        scheme: str,
        authority: str,
        endpoint: str,
        access: Access,
        *,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        super().__init__(scheme, authority, endpoint, access, http_session)
        self._connect(authority.partition("@")[0], endpoint, access)

    @abstractmethod
    def _connect(self, container: str, endpoint: str, access: Access) -> None:
        """Makes the clients of the container."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._scheme, self._authority, self._endpoint, self._access)

    def _existing(self, path: StorePath, operation: str) -> StorePath:
        """Returns the checked path; raises `StoreNotFoundError` if a name in it ends in a period."""
        # The service may drop the period, and read or delete the file whose name lacks it.
        if ends_in_period(self._checked(path)):
            raise StoreNotFoundError("no name here ends in a period", operation=operation, path=path)
        return path

    def _new(self, path: StorePath) -> StorePath:
        """Returns the checked path; raises `InvalidPathError` if a name in it ends in a period."""
        if ends_in_period(self._checked(path)):
            raise InvalidPathError(
                "a name ends in a period, which the service does not keep",
                path=path,
                next_step="end the names of files and directories in another character",
            )
        return path


def ends_in_period(path: StorePath) -> bool:
    """Returns True if a name in the path ends in a period."""
    return "./" in path.path or path.path.endswith(".")

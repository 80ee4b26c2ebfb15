"""Requests to a container of an Azure storage account."""

from __future__ import annotations

import itertools
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

from committer.errors import CommitterError, ConfigurationError, InvalidPathError, StoreNotFoundError
from committer.flow.runtime import current_runtime
from committer.logs import current_audit
from committer.paths import StorePath
from committer.stores.azure.access import Access, Query
from committer.stores.http import Answer, Body, HttpClient, check_name

# The first that knows `paginated`, without which deleting a large tree with a token fails after some thousand paths
# ("Path - Delete").
_VERSION: Final = "2023-08-03"
# Not imported: the package's front is above everything. It is there, however this was reached.
_USER_AGENT: Final = f"lake-committer/{sys.modules['committer'].__version__}"
NOTHING: Final[Query] = ()

# Nearly all paths: twice as quick as having `quote` find that there is nothing to do.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.\-~/=]*").fullmatch


class AzureWire(ABC):
    """Makes, signs and sends requests, each once.

    Args:
        endpoint: The account's endpoint, without a slash at its end.
        blob_endpoint: Its blob endpoint.
        filesystem: The container.
        access: What lets requests in.
        http: What sends them.

    Attributes:
        container_url: The container's URL, without a signature.
    """

    def __init__(self, endpoint: str, blob_endpoint: str, filesystem: str, access: Access, http: HttpClient) -> None:
        self._places = [self._split(endpoint, filesystem), self._split(blob_endpoint, filesystem)]
        self.container_url: str = "".join(self._places[0])
        self._access = access
        self._http = http
        self._filesystem = filesystem
        # Request ids are unique without drawing randomness for each: that costs a tenth of a request.
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
        """Sends a request and gives back its answer, whatever the status.

        Args:
            operation: What errors call it.
            method: The HTTP method.
            path: What it is about.
            query: Parameters in the order of their names.
            headers: Beside those that every request has.
            data: The body.
            blob: To the blob endpoint.
            changes: Whether it may change anything.
            at: Another path in the URL than `path`, empty for the container itself.
            source: What is renamed to `path`.
            limit: As for `HttpClient.send`.

        Raises:
            StoreError: As `HttpClient.send`, and as `Access.prepare`.
        """
        access, http = self._access, self._http
        if not access.ready:
            await access.prepare()
        url, sent = self._signed(method, path.path if at is None else at, query, headers, data, blob, source)
        answer = await http.send(
            method, url, sent, operation=operation, path=path, changes=changes, data=data, limit=limit
        )
        if answer.status == 401 and access.refused():
            # A token can end before its time. Nothing was done, so it may be sent again.
            if not access.ready:
                await access.prepare()
            url, sent = self._signed(method, path.path if at is None else at, query, headers, data, blob, source)
            answer = await http.send(
                method, url, sent, operation=operation, path=path, changes=changes, data=data, limit=limit
            )
        return answer

    def _signed(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str] | None,
        data: Body | None,
        blob: bool,
        source: StorePath | None,
    ) -> tuple[str, dict[str, str]]:
        """A request's URL and headers."""
        access = self._access
        origin, prefix = self._places[blob]
        raw = prefix + encoded(path)
        sent = {
            "User-Agent": _USER_AGENT,
            "x-ms-client-request-id": f"{self._prefix}-{next(self._numbers):x}{_audit()}",
            "x-ms-version": _VERSION,
        }
        if source is not None:
            # A URL too, which needs the signature where there is one.
            place = f"/{self._filesystem}{encoded(source.path)}"
            sent["x-ms-rename-source"] = f"{place}?{access.signature}" if access.signature else place
        if headers is not None:
            sent.update(headers)
        access.authorise(method, raw, query, sent, 0 if data is None else len(data))
        url = origin + raw
        if query or access.signature:
            parameters = [f"{name}={quote(value, safe='')}" for name, value in query]
            if access.signature:
                parameters.append(access.signature)
            url = f"{url}?{'&'.join(parameters)}"
        return url, sent

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
        exclusive: bool = False,
    ) -> Answer:
        """As `send`, for what has no refusal of its own meaning; `exclusive` on the condition that nothing is there.

        Raises:
            StoreError: The service refused.
        """
        answer = await self.send(operation, method, path, query, headers, data=data, changes=changes, at=at)
        if answer.status >= 300:
            raise self._refusal(answer, operation, path, changes=changes, exclusive=exclusive)
        return answer

    @abstractmethod
    def _refusal(
        self, answer: Answer, operation: str, path: StorePath, *, changes: bool, exclusive: bool
    ) -> CommitterError:
        """What a refusal means, as the service words it."""


def encoded(path: str) -> str:
    """A path as URLs hold it. (An equals sign stays, as in Hadoop's URLs: half of all partition names have one.)."""
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


MAX_NAME_BYTES: Final = 1024


class Container:
    """One container of an account, by the schemes and the authority of its paths.

    Args:
        schemes: Those that lead to it.
        authority: ``container@account.dfs.core.windows.net``, or what else names it.
    """

    def __init__(self, schemes: Collection[str], authority: str) -> None:
        self._schemes = schemes
        self._authority = authority

    def checked(self, path: StorePath) -> StorePath:
        """The path, where it belongs here.

        Raises:
            ConfigurationError: It belongs to another store.
            InvalidPathError: The service takes no such name.
        """
        if path.authority != self._authority or path.scheme not in self._schemes:
            raise ConfigurationError("the path belongs to another store", path=path)
        check_name(path, MAX_NAME_BYTES)
        return path

    def existing(self, path: StorePath, operation: str) -> StorePath:
        """The path, where something can stand there.

        Raises:
            StoreNotFoundError: A name in it ends in a period.
        """
        # The service may drop the period, and look at, or delete, what has the name without it.
        if ends_in_period(self.checked(path)):
            raise StoreNotFoundError("no name here ends in a period", operation=operation, path=path)
        return path

    def new(self, path: StorePath) -> StorePath:
        """The path, where something can be put there.

        Raises:
            InvalidPathError: A name in it ends in a period.
        """
        if ends_in_period(self.checked(path)):
            raise InvalidPathError(
                "a name ends in a period, which the service does not keep",
                path=path,
                next_step="end the names of files and directories in another character",
            )
        return path


def ends_in_period(path: StorePath) -> bool:
    """Whether one of its names does."""
    return "./" in path.path or path.path.endswith(".")

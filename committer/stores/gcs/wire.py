"""Requests to one bucket over the JSON API, as they go over the wire."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.gcs.access import Access
from committer.stores.gcs.errors import error_of
from committer.stores.http import Answer, Body, HttpClient

# Not imported: the package's front is above everything. It is there, however this was reached.
_USER_AGENT: Final = f"lake-committer/{sys.modules['committer'].__version__}"

# The service repeats its earlier answer to a change that something on the way sends again (google-cloud-cpp, issue
# 12347).
IDEMPOTENCY: Final = "x-goog-gcs-idempotency-token"

Query = Sequence[tuple[str, str]]


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def _name_in_url(path: StorePath) -> str:
    """The name of an object as a URL holds it: one segment. Called once or twice for every file of a job, and files
    share their directories: to escape a slash makes the library go through a text letter by letter.
    """
    above, slash, last = path.path[1:].rpartition("/")
    return f"{_quoted(above)}%2F{quote(last, safe='')}" if slash else quote(last, safe="")


class GcsWire:
    """Makes, authorises and sends requests, each once.

    Args:
        endpoint: Where the service is, without a slash at its end.
        bucket: The bucket.
        user_project: The project that pays; None for the bucket's.
        access: What lets requests in.
        http: What sends them.
    """

    def __init__(self, endpoint: str, bucket: str, user_project: str | None, access: Access, http: HttpClient) -> None:
        name = quote(bucket, safe="")
        self._objects = f"{endpoint}/storage/v1/b/{name}/o"
        self._uploads = f"{endpoint}/upload/storage/v1/b/{name}/o"
        self._bucket = f"{endpoint}/storage/v1/b/{name}"
        self._name = name
        self._endpoint = endpoint
        self._pays: Query = (("userProject", user_project),) if user_project else ()
        self._access = access
        self._http = http
        # Tokens are unique without drawing randomness for each; a forked process begins where its parent was.
        self._prefix = current_runtime().nonce(16)
        self._numbers = itertools.count(1)

    def object_url(self, path: StorePath) -> str:
        """The URL of an object."""
        return f"{self._objects}/{_name_in_url(path)}"

    def move_url(self, source: StorePath, destination: StorePath) -> str:
        """The URL that gives an object another name."""
        return f"{self.object_url(source)}/moveTo/o/{_name_in_url(destination)}"

    def rewrite_url(self, source: StorePath, destination: StorePath) -> str:
        """The URL that copies an object within the bucket."""
        return f"{self.object_url(source)}/rewriteTo/b/{self._name}/o/{_name_in_url(destination)}"

    def target_of(self, path: StorePath) -> str:
        """The URL of an object as a call in a batch names it: without the service's."""
        parameters = "".join(f"?{name}={quote(value, safe='')}" for name, value in self._pays)
        return f"{self.object_url(path).removeprefix(self._endpoint)}{parameters}"

    def token(self) -> str:
        """An idempotency token that no other call has."""
        return f"{self._prefix}-{os.getpid():x}-{next(self._numbers):x}"

    @property
    def batch_url(self) -> str:
        """The URL of batches of calls."""
        return f"{self._endpoint}/batch/storage/v1"

    @property
    def listing_url(self) -> str:
        """The URL of the bucket's objects."""
        return self._objects

    @property
    def upload_url(self) -> str:
        """The URL that makes objects."""
        return self._uploads

    @property
    def bucket_url(self) -> str:
        """The URL of the bucket."""
        return self._bucket

    async def send(
        self,
        operation: str,
        method: str,
        path: StorePath,
        url: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        limit: int | None = None,
    ) -> Answer:
        """Sends a request and gives back its answer, whatever the status.

        Args:
            operation: What errors call it.
            method: The HTTP method.
            path: What it is about.
            url: Where it goes, without parameters.
            query: Parameters.
            headers: Beside those that every request has.
            data: The body.
            changes: Whether it may change anything.
            limit: As for `HttpClient.send`.

        Raises:
            StoreError: As `HttpClient.send`, and as `Access.prepare`.
        """
        parameters = "&".join([f"{name}={quote(value, safe='')}" for name, value in (*query, *self._pays)])
        target = f"{url}?{parameters}" if parameters else url
        sent = {"User-Agent": _USER_AGENT, **(headers or {})}
        if changes:
            sent[IDEMPOTENCY] = self.token()
        return await self.resend(operation, method, path, target, sent, data=data, changes=changes, limit=limit)

    async def resend(
        self,
        operation: str,
        method: str,
        path: StorePath,
        target: str,
        headers: dict[str, str],
        *,
        data: Body | None = None,
        changes: bool = True,
        limit: int | None = None,
    ) -> Answer:
        """As `send`, with a URL and headers that are whole but for the token."""
        access = self._access
        if not access.ready:
            await access.prepare()
        self._authorise(headers)
        answer = await self._http.send(
            method, target, headers, operation=operation, path=path, changes=changes, data=data, limit=limit
        )
        if answer.status == 401 and self.refused():
            # A token can end before its time. Nothing was done, so it may be sent again.
            await access.prepare()
            self._authorise(headers)
            answer = await self._http.send(
                method, target, headers, operation=operation, path=path, changes=changes, data=data, limit=limit
            )
        return answer

    async def done(
        self,
        operation: str,
        method: str,
        path: StorePath,
        url: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
    ) -> Answer:
        """As `send`, for what has no refusal of its own meaning.

        Raises:
            StoreError: The service refused.
        """
        answer = await self.send(operation, method, path, url, query, headers, data=data, changes=changes)
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=changes)
        return answer

    def refused(self) -> bool:
        """Told of a 401, of a call in a batch too; whether what was refused may be sent again, with another token."""
        return self._access.refused()

    def _authorise(self, headers: dict[str, str]) -> None:
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"

"""HTTP sessions, requests, deadlines and limits of the HTTP stores.

aiohttp's own limit for the next byte makes two timers for each request, which take a tenth of all that the request
costs. Here a look at all requests under way, a few times in the time that one may stand still, counts those looks
that found nothing new. It counts looks and not seconds, so that a process that stood still itself, and could not
take what had come, gives nothing up.

A request is sent once. The caller learns whether it can have had an effect and decides what to do: pacing and
retries are `committer.stores.paced`'s, and how a service words its refusals is each store's own.
"""

from __future__ import annotations

import asyncio
import math
import re
import urllib.request
import weakref
from collections.abc import Mapping
from functools import lru_cache, partial
from io import BytesIO
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from multidict import istr
from yarl import URL

from committer.advice import LOOK_BEFORE
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from committer.flow.store_clock import watched_clock
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.helpers import too_long

PAGE_BYTES: Final = 64 << 20
"""Limit for a request that changes nothing: the largest page, 5,000 blobs with the most metadata allowed."""

CHANGE_BYTES: Final = 8 << 20
"""Limit for a request that changes something: 1,000 errors of a batch, with keys of the greatest length."""

ERROR_BYTES: Final = 1 << 20
"""Limit for an error response, which is cut off there."""


class AnswerTooLongError(aiohttp.ClientError):
    """Error of a response body that exceeds the limit of its kind."""


async def body_of(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Reads a response body; None, with the connection closed, if the body is longer than `most` bytes.

    A body whose Content-Length exceeds `most` is not read at all. An error response is cut off at `ERROR_BYTES`.
    """
    refused = response.status >= 300
    # Unlike a list of parts that is joined at the end, BytesIO never holds the body twice.
    read = BytesIO()
    left = ERROR_BYTES if refused else most
    try:
        if refused or (response.content_length or 0) <= most:
            while part := await response.content.readany():
                read.write(part)
                left -= len(part)
                if left < 0:
                    break
            else:
                return read.getvalue()
        return read.getvalue() if refused else None
    finally:
        # No effect after a complete body: aiohttp has released the connection for reuse.
        response.close()


# Within the time that an answer may stand still. It is given up up to one part of it late.
_LOOKS: Final = 8

# A response may stay below the least bytes a second for this many times the stall limit (a minute). Requests that
# change something get more: S3 sends blanks for minutes while it completes an upload.
_PATIENCE: Final = 2
_PATIENCE_OF_CHANGES: Final = 30
_LEAST_BYTES_PER_S: Final = 1024

# No response may take longer than this many times the stall limit.
_LONGEST: Final = 60


class AnswerWatch:
    """Watches the requests of one event loop.

    Args:
        begin_s: Seconds until the head of an answer must be there.
        next_s: Seconds until the next byte of its body must be there.
    """

    def __init__(self, begin_s: float, next_s: float) -> None:
        self._every_s = next_s / _LOOKS
        # The first look may come right after a request began: it proves nothing.
        self._begin = math.ceil(begin_s / self._every_s) + 1
        self._next = _LOOKS + 1
        self._bytes_a_look = _LEAST_BYTES_PER_S * self._every_s
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, more_s: float = 0.0, *, changes: bool = False) -> Watched:
        """A context manager around one request; it raises `TimeoutError` if the response stalls or trickles.

        Args:
            more_s: Seconds more until the head must be there: what is to be sent takes so long.
            changes: Whether the request changes something: the service may then work for minutes while it responds.
        """
        begin = self._begin + math.ceil(more_s / self._every_s) if more_s else self._begin
        return Watched(self, begin, _LOOKS * (_PATIENCE_OF_CHANGES if changes else _PATIENCE))

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, one: Watched) -> None:
        """Watches a request."""
        self._watched.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def discard(self, one: Watched) -> None:
        """Watches a request no more."""
        self._watched.discard(one)

    def _look(self) -> None:
        self._timer = None
        for one in self._watched:
            one.look(self._next, self._bytes_a_look)
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)


class Watched:
    """One request; see `AnswerWatch.request`."""

    # As `asyncio.Timeout`, whose two ends are coroutines.
    __slots__ = ("_cancelling", "_content", "_given_up", "_left", "_looks", "_patience", "_seen", "_task", "_watch")

    def __init__(self, watch: AnswerWatch, looks: int, patience: int) -> None:
        self._watch = watch
        self._left = looks
        self._looks = 0
        self._patience = patience
        self._content: aiohttp.StreamReader | None = None
        self._seen = 0
        self._given_up = False

    def __enter__(self) -> Self:
        # A coroutine that no task runs cannot send anything: aiohttp waits as tasks do.
        task: Any = asyncio.current_task()
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.discard(self)
        # Another's cancellation goes on; only what was asked for here alone is an answer that did not come.
        if self._given_up and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError("the response stopped, or was too slow") from error

    def begun(self, content: aiohttp.StreamReader) -> None:
        """The head of the answer is there; from now on each byte of its body counts."""
        self._content = content
        # Looks are counted anew from the next one on.
        self._seen = -1

    def look(self, most: int, least_bytes: float) -> None:
        """Counts a check of the response; ends the request if the response stalls, trickles or takes too long.

        Args:
            most: Checks in a row without a new byte after which the request ends.
            least_bytes: Bytes that must arrive between two checks, on average, after the time of patience.
        """
        if self._given_up:
            return
        content = self._content
        self._left -= 1
        if content is not None:
            self._looks += 1
            if content.total_bytes != self._seen:
                self._seen = content.total_bytes
                self._left = most - 1
            trickles = (self._looks - self._patience) * least_bytes > content.total_bytes
            if trickles or self._looks > _LONGEST * _LOOKS:
                self._left = 0
        if self._left <= 0:
            self._given_up = True
            self._task.cancel()


Body = bytes | bytearray | memoryview

# The connection was never there, so nothing was sent. aiohttp raises these from its connector only.
_NOT_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerFingerprintMismatch,
)

# Left out of requests: a store that signs says itself what it sends.
_NOT_SENT_BY_ITSELF: Final = frozenset(map(istr, ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")))

# An upload may take this long for every byte before its deadline, on top of the wait for an answer.
_SLOWEST_UPLOAD_BYTES_PER_S: Final = 128 * 1024

# A body up to here waits for nothing on its way into the connection, so that the watch over the answer bounds it too.
_SHORT_BODY_BYTES: Final = 32 * 1024

# From here on aiohttp would warn of bytes that are written in one go.
_LONG_BODY_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 1 << 16

_MOST_SAID: Final = 300

_SECRETS: Final = re.compile(
    r"(\b(?:sig|X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|X-Goog-Signature|upload_id)=)[^&\s'\"]+"
    r"|(\b(?:Signature|Credential|aws_secret_access_key|aws_session_token)\s*=\s*)[^&\s,'\"]+"
    r"|((?:AccountKey|SharedAccessSignature)=)[^;\s'\"]+"
    r"|(\b(?:Bearer|SharedKey)\s+)[^\s'\",;)]+"
    r"|(://[^/@:\s'\"]*:)[^/@\s'\"]+(?=@)"
    r"|(\b(?:Authorization|X-Amz-Security-Token)['\"]?\s*[:=]\s*['\"]?)[^'\"\r\n]+",
    re.IGNORECASE,
)


class Answer:
    """What a service answered.

    Attributes:
        status: The HTTP status.
        headers: By name, in any case.
        body: All of it; empty where only its end was lost and the call's effect is known by its status.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status: int = status
        self.headers: Mapping[str, str] = headers
        self.body: bytes = body


class _AnswerLostError(aiohttp.ClientError):
    """The connection ended before an answer came."""


async def _sent_once(
    headers: Mapping[str, str], request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Gives a request its headers, and keeps aiohttp from sending it twice.

    It sends GET, HEAD, PUT and DELETE once more when the connection they went out on drops (RFC 9112, 9.3.1: they are
    idempotent). On a store a PUT can be a rename, whose second sending finds no source and is told so: a rename that
    was done would look like one that was refused. What aiohttp sends again is what fails with one of two types, so
    those become another here.

    Headers that are given to the session are copied one by one, twice.
    """
    request.headers.update(headers)
    try:
        return await handler(request)
    except _NOT_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _AnswerLostError(f"{type(error).__name__}: {error}") from None


class _LongBody(aiohttp.Payload):
    """A body that is written slice by slice out of the caller's memory; as a stream aiohttp would copy it whole."""

    _value: memoryview

    def __init__(self, data: Body) -> None:
        super().__init__(memoryview(data).cast("B"))
        self._size = len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """What aiohttp asks of every body."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes all of it; waits while the connection takes no more."""
        for start in range(0, len(self._value), _SLICE_BYTES):
            await writer.write(self._value[start : start + _SLICE_BYTES])
            # One that never has to wait would keep the loop for as long as the body is.
            await asyncio.sleep(0)


class HttpClient:
    """Sends requests, each once, over connections that are kept.

    One session for each event loop that uses it, opened by the first request there. Holds no secret.

    Args:
        session: One to use instead of its own, on the loop it belongs to; it is never closed here. Its middlewares are
            not run.
        connect_s: Seconds to wait for a connection.
        answer_s: Seconds to wait for an answer to begin, and for each next byte of its body.
    """

    def __init__(
        self, *, session: aiohttp.ClientSession | None = None, connect_s: float = 15.0, answer_s: float = 60.0
    ) -> None:
        self._given = session
        self._answer_s = answer_s
        self._connect_s = connect_s
        # Its other limits would cost timers for each request: a watch over all of them bounds what can hang.
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_s)
        self._open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = weakref.WeakKeyDictionary()

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        operation: str,
        path: StorePath,
        changes: bool,
        data: Body | None = None,
        limit: int | None = None,
    ) -> Answer:
        """Sends a request once and reads the answer, whatever its status.

        Args:
            method: The HTTP method.
            url: Encoded as it goes over the wire; it may hold a signature, which no error repeats.
            headers: All there are, but for those of the connection.
            operation: What errors call it.
            path: What errors say it failed on.
            changes: Whether it may change anything at the store: then a lost answer leaves its outcome open.
            data: The body.
            limit: For a request that reads a file: the longest file allowed, in bytes.

        Raises:
            RecordError: The file is longer than `limit`.
            StoreUnavailableError: No connection could be made; or the answer was lost, and it changes nothing.
            StoreOutcomeUnknownError: It was sent and the answer was lost.
            ConfigurationError: The URL is none, or the session that was given is closed.
        """
        loop = asyncio.get_running_loop()
        opened = self._open.get(loop)
        if opened is None or opened.session.closed:
            opened = self._opened(loop)
        timeout, upload_s = self._timeout, 0
        response: aiohttp.ClientResponse | None = None
        if data is not None and len(data) > _SHORT_BODY_BYTES:
            upload_s = len(data) // _SLOWEST_UPLOAD_BYTES_PER_S + 1
            timeout = _upload_timeout(self._connect_s, self._answer_s, upload_s)
        try:
            with opened.watch.request(upload_s, changes=changes) as watched:
                response = await opened.session.request(
                    method,
                    URL(url, encoded=True),
                    data=data if data is None or len(data) < _LONG_BODY_BYTES else _LongBody(data),
                    allow_redirects=False,
                    # Its own leaves them out of every request, which costs less.
                    skip_auto_headers=None if self._given is None else _NOT_SENT_BY_ITSELF,
                    timeout=timeout,
                    proxy=_proxy_for(url[: url.find("/", len("https://"))]),
                    middlewares=(partial(_sent_once, headers),),
                )
                clock = watched_clock.get()
                if clock is not None:
                    clock.told(response.headers.get("Date", ""))
                content = response.content
                if response.connection is None and content.is_eof():
                    # All of it came with its head, as nearly always: there is nothing to wait for.
                    return Answer(response.status, response.headers, content.read_nowait())
                watched.begun(content)
                most = limit if limit is not None else CHANGE_BYTES if changes else PAGE_BYTES
                body = await body_of(response, most)
            if body is not None:
                return Answer(response.status, response.headers, body)
            if limit is not None:
                raise too_long(path, limit)
            raise AnswerTooLongError(f"the response is longer than {most} bytes")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if response is not None and changes and response.status < 300:
                return Answer(response.status, response.headers, b"")
            failure = _failure(error, operation, path, changes=changes)
        except BaseException:
            if response is not None:
                response.close()
            raise
        # Not from within the handler: aiohttp's errors hold the request, whose URL and headers may hold secrets.
        raise failure

    async def close(self) -> None:
        """Closes the running loop's session, which no other loop can do. May be used again afterwards."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        # Requests of a session that was given may still be under way; the watch ends with the last of them.
        if opened is not None and opened.session is not self._given:
            opened.watch.close()
            await opened.session.close()

    def _opened(self, loop: asyncio.AbstractEventLoop) -> _Open:
        if self._given is not None and self._given.closed:
            raise ConfigurationError(
                "the HTTP session given as the option http_session is closed",
                operation="send",
                next_step="give an open session, or leave it out",
            )
        session = self._given or aiohttp.ClientSession(
            # How many calls are in flight is the engine's to bound.
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOT_SENT_BY_ITSELF,
            auto_decompress=False,
            timeout=self._timeout,
        )
        opened = self._open[loop] = _Open(session, AnswerWatch(self._connect_s + self._answer_s, self._answer_s))
        return opened


class _Open(NamedTuple):
    """What one event loop uses."""

    session: aiohttp.ClientSession
    watch: AnswerWatch


@lru_cache(maxsize=64)
def _upload_timeout(connect_s: float, answer_s: float, upload_s: int) -> aiohttp.ClientTimeout:
    """Limits for a request with a long body; one for each is dear to make."""
    return aiohttp.ClientTimeout(total=connect_s + answer_s + upload_s, connect=connect_s, sock_read=answer_s)


@lru_cache(maxsize=64)
def _proxy_for(origin: str) -> str | None:
    """The proxy that the environment names for a server; this machine's own are never behind one.

    (aiohttp would look for it at each request, in a thread.)
    """
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _failure(
    error: aiohttp.ClientError | OSError | ValueError, operation: str, path: StorePath, *, changes: bool
) -> StoreError | ConfigurationError:
    kind = "" if isinstance(error, _AnswerLostError) else type(error).__name__
    # aiohttp quotes a response that is not HTTP in its error.
    said = redact(": ".join(part for part in (kind, str(error)) if part))[:_MOST_SAID]
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return ConfigurationError(
            f"a request cannot be sent: {type(error).__name__}",
            operation=operation,
            path=path,
            next_step="check the endpoint, the proxy and the names that were given",
        )
    if isinstance(error, _NOT_SENT):
        return StoreUnavailableError(
            f"the service cannot be reached: {said}",
            operation=operation,
            path=path,
            next_step="check the endpoint, the account's name and the network",
        )
    if not changes:
        return StoreUnavailableError(f"the answer was lost: {said}", operation=operation, path=path)
    return StoreOutcomeUnknownError(
        f"the request was sent and the answer was lost: {said}",
        operation=operation,
        path=path,
        next_step=LOOK_BEFORE,
    )


def checked_endpoint(endpoint: str, option: str, example: str) -> str:
    """An endpoint's URL without slashes at its end.

    Args:
        endpoint: What was given.
        option: Where.
        example: What it must look like.

    Raises:
        ConfigurationError: It is none; what it says is not repeated.
    """
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.password
        # A password with a slash looks like a port that is none, which only asking for it finds out.
        usable = usable and parts.port != 0
    except ValueError:
        usable = False
    # Not repeated: it may be a URL with a signature.
    if not usable or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the option {option} is no URL of an endpoint", operation="open_store", next_step=f"write it as {example}"
        )
    return endpoint.rstrip("/")


def check_name(path: StorePath, longest: int) -> None:
    """Refuses a path that no URL can hold, or that is too long.

    Raises:
        InvalidPathError: It holds a NUL, is not valid Unicode, or is too long.
    """
    name = path.path
    if "\0" in name:
        raise InvalidPathError("a path holds a NUL", path=ascii(str(path)), next_step="give a name without it")
    try:
        if len(name) * 4 > longest and len(name.encode()) - 1 > longest:
            raise InvalidPathError(f"a path is longer than {longest} bytes", path=path, next_step="give a shorter name")
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        raise InvalidPathError(
            "a name is not valid Unicode", path=ascii(str(path)), next_step="give a name that UTF-8 can encode"
        ) from None


def redact(text: str) -> str:
    """Takes out what looks like a key, a signature or a token."""
    return _SECRETS.sub(lambda match: f"{next(group for group in match.groups() if group)}***", text)


class HttpStore(Store):
    """A bucket or container of a service that is reached by HTTP. A subclass sets what is named here.

    Its pickle holds no connection, which belongs to one process, and no secret: references to those.
    """

    _scheme: str
    _authority: str
    _endpoint: str
    _access: object
    _http: HttpClient

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scheme}://{self._authority}, {self._endpoint}, {self._access!r})"

    @property
    def scheme(self) -> str:
        """That of its URIs."""
        return self._scheme

    @property
    def endpoint(self) -> str:
        """The service's endpoint, with the bucket where limits are a bucket's, and not an account's."""
        return self._endpoint

    async def close(self) -> None:
        """Closes the running loop's connections."""
        await self._http.close()

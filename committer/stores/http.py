"""HTTP client of the stores: sessions, requests, deadlines and limits.

A request is sent once, and its error says whether it can have had an effect. `committer.stores.paced` retries; each
store maps its service's refusals to errors.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import urllib.request
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
from committer.flow.runtime import current_runtime
from committer.flow.store_clock import watched_clock
from committer.options.storage import refused
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.helpers import too_long

# Not imported: the layers forbid importing the package itself, which is always loaded.
USER_AGENT: Final = f"lake-committer/{sys.modules['committer'].__version__}"

PAGE_BYTES: Final = 64 << 20
"""Longest response to a request that changes nothing: a page of 5,000 blobs with the most metadata allowed."""

CHANGE_BYTES: Final = 8 << 20
"""Longest response to a request that changes something: 1,000 errors of a batch with the longest keys."""

ERROR_BYTES: Final = 1 << 20
"""Longest error response; the rest is cut off."""


class AnswerTooLongError(aiohttp.ClientError):
    """Error of a response body that exceeds the limit of its kind."""


async def body_of(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Reads a response body; returns None, with the connection closed, if it is longer than `most` bytes.

    Does not read a body at all whose Content-Length exceeds `most`; cuts an error response off at `ERROR_BYTES`.
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


# Checks per stall limit. A stalled response ends up to one check late.
_LOOKS: Final = 8

# No response may take longer than this many times the stall limit.
_LONGEST: Final = 60


class AnswerWatch:
    """Watch over the stalled requests of one event loop.

    aiohttp's own read timeout makes two timers per request, a tenth of a request's cost. This checks all requests by
    one timer, and counts the checks without a new byte. It counts checks and not seconds, so that a process that was
    suspended, and could not read what had arrived, ends no request.

    The head of a response must arrive within `begin_s`, each next byte of its body within `next_s` seconds.
    """

    def __init__(self, begin_s: float, next_s: float) -> None:
        self._every_s = next_s / _LOOKS
        # The first check may come right after a request began, and proves nothing.
        self._begin = math.ceil(begin_s / self._every_s) + 1
        self._next = _LOOKS + 1
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, more_s: float = 0.0) -> Watched:
        """Returns a context manager for one request; it raises `TimeoutError` if the response stalls.

        The upload gets `more_s` seconds more.
        """
        return Watched(self, self._begin + math.ceil(more_s / self._every_s) if more_s else self._begin)

    def close(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, one: Watched) -> None:
        """Starts to watch a request."""
        self._watched.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def discard(self, one: Watched) -> None:
        """Stops watching a request."""
        self._watched.discard(one)

    def _look(self) -> None:
        self._timer = None
        for one in self._watched:
            one.look(self._next)
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)


class Watched:
    """Watched request; see `AnswerWatch.request`."""

    __slots__ = ("_cancelling", "_content", "_given_up", "_left", "_looks", "_seen", "_task", "_watch")

    def __init__(self, watch: AnswerWatch, looks: int) -> None:
        self._watch = watch
        self._left = looks
        self._looks = 0
        self._content: aiohttp.StreamReader | None = None
        self._seen = 0
        self._given_up = False

    def __enter__(self) -> Self:
        # Never None: aiohttp needs a task.
        task: Any = asyncio.current_task()
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.discard(self)
        # Another caller's cancellation goes on; only this watch's own is a timeout.
        if self._given_up and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError("the response stopped, or was too slow") from error

    def begun(self, content: aiohttp.StreamReader) -> None:
        """Records that the head has arrived; from now on each byte of the body counts."""
        self._content = content
        # The count of checks restarts at the next one.
        self._seen = -1

    def look(self, most: int) -> None:
        """Counts a check; ends a request without a new byte in `most` checks, or that takes too long."""
        if self._given_up:
            return
        content = self._content
        self._left -= 1
        if content is not None:
            self._looks += 1
            if content.total_bytes != self._seen:
                self._seen = content.total_bytes
                self._left = most - 1
            if self._looks > _LONGEST * _LOOKS:
                self._left = 0
        if self._left <= 0:
            self._given_up = True
            self._task.cancel()


Body = bytes | bytearray | memoryview

# aiohttp raises these from its connector only: nothing was sent.
_NOT_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerFingerprintMismatch,
)

# aiohttp must not add these: a store that signs sets its own headers.
_NOT_SENT_BY_ITSELF: Final = frozenset(map(istr, ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")))

# Slowest upload; its time is added to the wait for the response.
_SLOWEST_UPLOAD_BYTES_PER_S: Final = 128 * 1024

# A body up to this length is written at once, so the watch bounds its sending, too.
_SHORT_BODY_BYTES: Final = 32 * 1024

# aiohttp warns of longer bodies of bytes.
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


@dataclass(slots=True, eq=False, repr=False)
class Answer:
    """HTTP response. The body is empty if only its end was lost and the status tells the call's effect."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _AnswerLostError(aiohttp.ClientError):
    """Error of a connection that ended before a response."""


async def _sent_once(
    headers: Mapping[str, str], request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Adds the headers to a request, and keeps aiohttp from sending it twice.

    aiohttp repeats GET, HEAD, PUT and DELETE when a kept connection drops, since they are idempotent (RFC 9112,
    9.3.1). But a PUT can be a rename on a store, whose repetition finds no source: a rename that was done would look
    refused. aiohttp repeats after two types of errors only, so these become another type here. Headers given to the
    session would be copied twice.
    """
    request.headers.update(headers)
    try:
        return await handler(request)
    except _NOT_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _AnswerLostError(f"{type(error).__name__}: {error}") from None


class _LongBody(aiohttp.Payload):
    """Request body written in slices of the caller's memory; as a stream aiohttp would copy it whole."""

    _value: memoryview

    def __init__(self, data: Body) -> None:
        super().__init__(memoryview(data).cast("B"))
        self._size = len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, len(self._value), _SLICE_BYTES):
            await writer.write(self._value[start : start + _SLICE_BYTES])
            # Without this a connection that always accepts more would block the loop for the whole body.
            await asyncio.sleep(0)


class HttpClient:
    """HTTP client that sends each request once, over kept connections. Holds no secret.

    One session for each event loop, opened by the first request there; or the given `session` on its loop, which is
    never closed here and whose middlewares are not run. `connect_s` bounds the wait for a connection, `answer_s` the
    wait for a response to begin and for each next byte of its body.
    """

    def __init__(
        self, *, session: aiohttp.ClientSession | None = None, connect_s: float = 15.0, answer_s: float = 60.0
    ) -> None:
        self._given = session
        self._answer_s = answer_s
        self._connect_s = connect_s
        # aiohttp's other limits would cost timers for each request; `AnswerWatch` replaces them.
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
        """Sends a request once and returns the response, whatever its status.

        `url` is encoded and may hold a signature, which no error repeats. `limit` is the longest file that a read
        accepts, in bytes. A lost response is a `StoreOutcomeUnknownError` if the request `changes` something, else a
        `StoreUnavailableError`, as is a failure to connect. Also raises `RecordError` for a longer file, and
        `ConfigurationError` for an invalid URL or a closed session.
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
            with opened.watch.request(upload_s) as watched:
                response = await opened.session.request(
                    method,
                    URL(url, encoded=True),
                    data=data if data is None or len(data) < _LONG_BODY_BYTES else _LongBody(data),
                    allow_redirects=False,
                    # The client's own session leaves them out already, which costs less.
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
                    # Nearly always the whole body arrives with the head.
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
        # Outside the handler: aiohttp's errors hold the request, whose URL and headers may hold secrets.
        raise failure

    async def close(self) -> None:
        """Closes the running loop's session; other loops close theirs. The client may be used again."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        # Requests of a given session may still run; their watch ends with the last of them.
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
            # The engine limits the calls in flight.
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOT_SENT_BY_ITSELF,
            auto_decompress=False,
            timeout=self._timeout,
        )
        opened = self._open[loop] = _Open(session, AnswerWatch(self._connect_s + self._answer_s, self._answer_s))
        return opened


class _Open(NamedTuple):
    session: aiohttp.ClientSession
    watch: AnswerWatch


@lru_cache(maxsize=64)
def _upload_timeout(connect_s: float, answer_s: float, upload_s: int) -> aiohttp.ClientTimeout:
    """Returns the limits for a request with a long body; cached, since each is slow to make."""
    return aiohttp.ClientTimeout(total=connect_s + answer_s + upload_s, connect=connect_s, sock_read=answer_s)


@lru_cache(maxsize=64)
def _proxy_for(origin: str) -> str | None:
    """Returns the environment's proxy for a server, None for this machine; cached, since aiohttp looks in a thread."""
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
        f"the request was sent and the answer was lost: {said}", operation=operation, path=path, next_step=LOOK_BEFORE
    )


def checked_endpoint(endpoint: str, option: str, example: str) -> str:
    """Checks the URL of an endpoint, and returns it without trailing slashes; raises `ConfigurationError`."""
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.password
        # A password with a slash looks like an invalid port, which only reading `port` reveals.
        usable = usable and parts.port != 0
    except ValueError:
        usable = False
    # The message leaves the URL out, since it may hold a signature.
    if not usable or parts.query or parts.fragment:
        raise refused(f"the option {option} is no URL of an endpoint", f"write it as {example}")
    return endpoint.rstrip("/")


MAX_NAME_BYTES: Final = 1024
"""Longest name of an object, the same on S3, Google Cloud Storage and Azure."""


def check_name(path: StorePath) -> None:
    """Refuses a path with NUL, invalid Unicode or too long a name by `InvalidPathError`."""
    name = path.path
    if "\0" in name:
        raise InvalidPathError("a path holds a NUL", path=ascii(str(path)), next_step="give a name without it")
    try:
        if len(name) * 4 > MAX_NAME_BYTES and len(name.encode()) - 1 > MAX_NAME_BYTES:
            raise InvalidPathError(
                f"a path is longer than {MAX_NAME_BYTES} bytes", path=path, next_step="give a shorter name"
            )
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        raise InvalidPathError(
            "a name is not valid Unicode", path=ascii(str(path)), next_step="give a name that UTF-8 can encode"
        ) from None


def redact(text: str) -> str:
    """Replaces keys, signatures and tokens in a text."""
    return _SECRETS.sub(lambda match: f"{next(group for group in match.groups() if group)}***", text)


class Access(ABC):
    """Abstract base of the ways to authenticate requests."""

    needs_tls: bool = False
    """True if it sends a secret itself, not something derived from one."""

    ready: bool = False
    """True if `prepare` has nothing to wait for."""

    @abstractmethod
    async def prepare(self) -> None:
        """Fetches the credentials; called before a request unless `ready`.

        Raises:
            CommitterError: They are missing or malformed, or their source was not reached.
        """

    def refused(self) -> bool:
        """Discards cached credentials after a 401; returns True if a retry after `prepare` may succeed."""
        return False

    def __reduce__(self) -> tuple[object, ...]:
        # A store is pickled with its options, in which secrets are references; what they led to stays.
        raise TypeError(f"{type(self).__name__} never leaves its process")

    async def close(self) -> None:  # noqa: B027 - most ways have no connections
        """Closes the running loop's connections to the source of credentials."""


class Renewed(Access):
    """Base of credentials that are fetched, and fetched again before they expire."""

    def __init__(self) -> None:
        self._fresh_until: float = 0.0
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    @property
    def ready(self) -> bool:  # type: ignore[override] # it changes with time
        """True if `prepare` has nothing to wait for."""
        return current_runtime().monotonic() < self._fresh_until

    async def prepare(self) -> None:
        """See `Access.prepare`; concurrent callers share one fetch."""
        loop = asyncio.get_running_loop()
        lock = self._locks.get(loop)
        if lock is None:
            lock = self._locks[loop] = asyncio.Lock()
        async with lock:
            if not self.ready:
                await self._renew()

    @abstractmethod
    async def _renew(self) -> None:
        """Fetches credentials and sets until when they are used."""


class HttpStore(Store):
    """Base of stores that are a bucket or container of an HTTP service; a pickle holds no connection and no secret."""

    _schemes: Collection[str]

    def __init__(
        self, scheme: str, authority: str, endpoint: str, access: Access, http_session: aiohttp.ClientSession | None
    ) -> None:
        self._scheme = scheme
        self._authority = authority
        self._endpoint = endpoint
        self._access = access
        self._http = HttpClient(session=http_session)

    def _checked(self, path: StorePath) -> StorePath:
        """Returns the path if it belongs to this store and the service allows its name."""
        if path.authority != self._authority or path.scheme not in self._schemes:
            raise ConfigurationError("the path belongs to another store", path=path)
        check_name(path)
        return path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scheme}://{self._authority}, {self._endpoint}, {self._access!r})"

    @property
    def scheme(self) -> str:
        """The scheme of its URIs."""
        return self._scheme

    @property
    def endpoint(self) -> str:
        """The service's endpoint, with the bucket if limits are per bucket and not per account."""
        return self._endpoint

    async def close(self) -> None:
        """Closes the running loop's connections."""
        await self._access.close()
        await self._http.close()

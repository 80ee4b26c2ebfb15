"""The HTTP server: takes requests apart, has them authorised and answered, and gives every answer its headers."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from committer_testing.emulators.control import Control
from committer_testing.emulators.faults import Conduct, Fault, LoggedRequest
from committer_testing.emulators.gcs import batch, routes
from committer_testing.emulators.gcs.access import Access
from committer_testing.emulators.gcs.errors import ServiceError, reason_of
from committer_testing.emulators.gcs.json_api import JsonApi
from committer_testing.emulators.gcs.namespace import Namespace
from committer_testing.emulators.gcs.objects import Bucket, Clock
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.gcs.wire import Answer, Request, decoded_segments, parse_query
from committer_testing.emulators.serving import listening, read_body, split_target, wait_after

IDEMPOTENCY_HEADER: Final = "x-goog-gcs-idempotency-token"
# What a token of a client may be long; the documents name no number.
_TOKEN_LIMIT = 1024
_REMEMBERED = 100_000
# A resumable upload knows by itself what has come.
_REPEATABLE = frozenset(
    {"insert", "move", "rewrite", "copy", "compose", "patch", "update", "delete", "restore", "start-upload"}
)


class GcsEmulator:
    """An emulated service. `serve` is how to run it.

    Attributes:
        settings: What it is.
        namespace: Its buckets; a test may look and change them between requests.
        access: Its tokens.
        conduct: Faults, rate limit, counters and the request log.
        api: What answers the calls.
        url: Where it serves, e.g. `http://127.0.0.1:4443`.
    """

    def __init__(self, settings: Settings) -> None:
        clock = Clock()
        self.settings: Settings = settings
        self.namespace: Namespace = Namespace(settings, clock)
        self.access: Access = Access(settings)
        self.conduct: Conduct = Conduct(settings.rate, settings.burst_seconds, settings.request_log)
        self.api: JsonApi = JsonApi(settings, self.namespace, self.access)
        self.url: str = ""
        self._clock = clock
        self._control = Control(self.conduct, "buckets", self.namespace.buckets)
        self._request_prefix = str(uuid.uuid4())[:24]
        self._numbers = itertools.count(1)
        self._answered: OrderedDict[tuple[str, str, str], Answer] = OrderedDict()

    def make_bucket(self, name: str) -> Bucket:
        """Makes a bucket as `POST /storage/v1/b` does.

        Raises:
            ServiceError: The name makes no sense or is taken.
        """
        return self.api.buckets.make(name)

    async def handle(self, wire: web.BaseRequest) -> web.StreamResponse:
        """Answers one HTTP request."""
        path, _ = split_target(wire.raw_path)
        if path.startswith("/_control/"):
            return await self._control.handle(wire)
        # Always read: what is left of a body would be taken for the next request.
        body = await read_body(wire)
        answer: Answer | None
        if path == "/token":
            answer = self.access.exchange(body)
        elif path.startswith("/computeMetadata/"):
            answer = self.access.metadata(path, wire.headers)
        elif path in {"/batch", "/batch/storage/v1"}:
            answer = await self._batch(wire, body)
        else:
            answer = await self.respond(wire.method, wire.raw_path, wire.headers, body)
        if answer is None:
            if wire.transport is not None:
                wire.transport.abort()
            answer = Answer(499)
        answer.headers["Server"] = "UploadServer"
        answer.headers["Date"] = self._clock.now()
        return web.Response(
            body=answer.body or None,
            status=answer.status,
            reason="Resume Incomplete" if answer.status == 308 else None,
            headers=answer.headers,
        )

    async def respond(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Answers one call, be it a request of its own or a part of a batch; None to drop the connection."""
        identity = f"{self._request_prefix}{next(self._numbers):012x}"
        entry = LoggedRequest(time.time(), "json", "", method, "", "", 0, "", "", "", identity)
        entry.client_request_id = headers.get(IDEMPOTENCY_HEADER, "")[:_TOKEN_LIMIT]
        entry.user_agent = headers.get("User-Agent", "")
        self.conduct.log.append(entry)
        request: Request | None = None
        answer: Answer | None
        try:
            request = self._parse(method, target, headers, body)
            routes.name_operation(request)
            entry.endpoint, entry.operation = request.endpoint, request.operation
            if request.endpoint == "upload":
                self.api.uploads.describe(request)
            entry.path = f"{request.bucket}/{request.name}"
            if request.source is not None:
                entry.source = "/".join(request.source)
            answer = await self._serve(request, entry)
        except ServiceError as error:
            entry.code = error.code
            answer = _refusal(request, method, error)
        entry.status = 0 if answer is None else answer.status
        self.conduct.counters.statuses[entry.status] += 1
        if answer is not None:
            answer.headers.setdefault("X-GUploader-UploadID", identity)
        return answer

    def _parse(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
        path, query = split_target(target)
        host = headers.get("Host")
        base = f"{self.url.partition('://')[0]}://{host}" if host else self.url
        meant = headers.get("X-HTTP-Method-Override", method).upper()
        return Request(meant, target, base, decoded_segments(path), parse_query(query), headers, body)

    async def _batch(self, wire: web.BaseRequest, body: bytes) -> Answer | None:
        try:
            calls = batch.parse(wire.headers, body)
        except ServiceError as error:
            return _refusal(None, wire.method, error)
        answers = []
        for call in calls:
            answer = await self.respond(call.method, call.target, call.headers, call.body)
            if answer is None:
                return None
            answers.append((call, answer))
        return batch.joined(answers)

    async def _serve(self, request: Request, entry: LoggedRequest) -> Answer | None:
        """The answer after faults and rate limit; None to drop the connection."""
        conduct = self.conduct
        throttled = not conduct.limit.admit()
        conduct.counters.count(request.operation, throttled=throttled)
        if throttled:
            after = self.settings.retry_after
            status = self.settings.throttle_status
            raise ServiceError(reason_of(status), headers={} if after is None else {"Retry-After": f"{after:g}"})
        identity = entry.client_request_id or f"{request.method} {entry.path} {entry.source}"
        faults = conduct.faults_for(request.operation, entry.path, identity)
        if not faults:
            return self._answer(request, entry)
        entry.faults = tuple(fault.kind for fault in faults)
        for fault in faults:
            if fault.kind == "latency":
                await asyncio.sleep(fault.seconds)
            elif fault.kind == "reset":
                return None
            elif fault.kind == "error":
                raise _as_error(fault)
        try:
            answer = self._answer(request, entry)
        except ServiceError:
            # A fault after the effect needs an effect; a refusal is told as it is, late if need be.
            await wait_after(faults)
            raise
        await wait_after(faults)
        for fault in faults:
            if fault.kind == "reset-after":
                return None
            if fault.kind == "error-after":
                raise _as_error(fault)
        return answer

    def _answer(self, request: Request, entry: LoggedRequest) -> Answer:
        if request.operation not in {"upload-chunk", "cancel-upload"}:
            # The URL of an upload authorises by itself ("Resumable uploads": "acts as an authentication token").
            self.access.verify(request.headers)
        token = entry.client_request_id
        if not token or not self.settings.idempotency_tokens or request.operation not in _REPEATABLE:
            return self.api.answer(request)
        key = (token, request.method, request.target)
        earlier = self._answered.get(key)
        if earlier is None:
            earlier = self._answered[key] = self.api.answer(request)
            if len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
        return Answer(earlier.status, dict(earlier.headers), earlier.body)


def _refusal(request: Request | None, method: str, error: ServiceError) -> Answer:
    if method == "HEAD" or error.status == 304:
        return Answer(error.status, error.headers)
    if request is not None and request.operation == "read":
        # A download tells its error in plain text, as Google's clients show it.
        return Answer(
            error.status, {"Content-Type": "text/html; charset=UTF-8", **error.headers}, error.message.encode()
        )
    return Answer(error.status, {"Content-Type": "application/json; charset=UTF-8", **error.headers}, error.body())


def _as_error(fault: Fault) -> ServiceError:
    headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    return ServiceError(fault.code or reason_of(fault.status), fault.message, status=fault.status, headers=headers)


@asynccontextmanager
async def serve(
    settings: Settings | None = None, *, port: int = 0, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[GcsEmulator]:
    """Serves on 127.0.0.1 while the block runs.

    Args:
        settings: What to emulate.
        port: Where; 0 picks a free one.
        ssl_context: Serves TLS with it.

    Raises:
        OSError: The port is taken.
    """
    emulator = GcsEmulator(settings or Settings())
    # Bodies as they came: an object may be stored compressed.
    async with listening(emulator.handle, port, ssl_context, auto_decompress=False) as address:
        emulator.url = address
        yield emulator

"""The HTTP server: takes requests apart, has them authorised and answered, and gives every answer its headers."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from committer_testing.emulators.adls import blob, dfs
from committer_testing.emulators.adls.auth import Authority
from committer_testing.emulators.adls.errors import ServiceError, blob_body, dfs_body
from committer_testing.emulators.adls.namespace import Namespace
from committer_testing.emulators.adls.nodes import Clock
from committer_testing.emulators.adls.settings import Settings
from committer_testing.emulators.adls.wire import Answer, Endpoint, Request, parse_query, path_in
from committer_testing.emulators.control import Control
from committer_testing.emulators.faults import Conduct, Fault, LoggedRequest
from committer_testing.emulators.serving import listening, read_body, split_target, wait_after

_SERVER_NAME: Final[dict[Endpoint, str]] = {
    "dfs": "Windows-Azure-HDFS/1.0 Microsoft-HTTPAPI/2.0",
    "blob": "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0",
}
# What the documents say a client request id may be at most.
_CLIENT_REQUEST_ID_LIMIT = 1024


class AdlsEmulator:
    """One emulated account. `serve` is how to run it.

    Attributes:
        settings: The account.
        namespace: What is in it; a test may look and change it between requests.
        conduct: Faults, rate limit, counters and the request log.
        url: Where it serves, with the account's name, e.g. `http://127.0.0.1:10000/devstoreaccount1`.
    """

    def __init__(self, settings: Settings) -> None:
        clock = Clock()
        self.settings: Settings = settings
        self.namespace: Namespace = Namespace(settings, clock)
        self.conduct: Conduct = Conduct(settings.rate, settings.burst_seconds, settings.request_log)
        self.url: str = ""
        self._clock = clock
        self._authority = Authority(settings)
        self._dfs = dfs.Dfs(settings, self.namespace, clock, self._authority)
        self._blob = blob.Blob(settings, self.namespace, clock)
        self._control = Control(self.conduct, "filesystems", self.namespace.filesystems)
        self._request_prefix = str(uuid.uuid4())[:24]
        self._numbers = itertools.count(1)

    @property
    def dfs_url(self) -> str:
        """A URL at which only the DFS endpoint answers; its `.dfs.` is what the official client makes `.blob.` of."""
        return f"{self.url}.dfs.emulator"

    @property
    def blob_url(self) -> str:
        """A URL at which only the blob endpoint answers."""
        return f"{self.url}.blob.emulator"

    async def handle(self, wire: web.BaseRequest) -> web.StreamResponse:
        """Answers one HTTP request."""
        raw, query = split_target(wire.raw_path)
        if raw.startswith("/_control/"):
            return await self._control.handle(wire)
        number = next(self._numbers)
        request_id = f"{self._request_prefix}{number:012x}"
        endpoint: Endpoint = "dfs"
        entry = LoggedRequest(time.time(), endpoint, "", wire.method, "", "", 0, "", "", "", request_id)
        entry.client_request_id = wire.headers.get("x-ms-client-request-id", "")[:_CLIENT_REQUEST_ID_LIMIT]
        entry.user_agent = wire.headers.get("User-Agent", "")
        self.conduct.log.append(entry)
        try:
            request = self._parse(wire, raw, query)
            entry.endpoint = endpoint = request.endpoint
            name = blob.operation_of(request) if endpoint == "blob" else dfs.operation_of(request)
            entry.operation = request.operation = name
            entry.path = f"{request.filesystem}/{request.path}"
            entry.source = wire.headers.get("x-ms-rename-source", "").partition("?")[0]
            # Always read: what is left of a body would be taken for the next request.
            request.body = await read_body(wire)
            answer = await self._serve(request, entry)
        except ServiceError as error:
            entry.code = error.code
            answer = self._refusal(endpoint, wire.method, error, request_id)
        if answer is None:
            if wire.transport is not None:
                wire.transport.abort()
            answer = Answer(499)
        else:
            entry.status = answer.status
        self.conduct.counters.statuses[entry.status] += 1
        return self._response(wire, endpoint, answer, entry)

    def _parse(self, wire: web.BaseRequest, raw: str, query: str) -> Request:
        """Takes a request apart: which endpoint, filesystem and path its URL means."""
        host = wire.headers.get("Host", "").partition(".")
        service = host[2].partition(".")[0]
        account = self.settings.account
        endpoint: Endpoint | None = None
        path = raw
        if host[0] == account and service in {"dfs", "blob"}:
            endpoint = "dfs" if service == "dfs" else "blob"
        else:
            first, _, path = raw.lstrip("/").partition("/")
            name, _, suffix = first.partition(".")
            service = suffix.partition(".")[0]
            if name != account or (suffix and service not in {"dfs", "blob"}):
                raise ServiceError("ResourceNotFound")
            if suffix:
                endpoint = "dfs" if service == "dfs" else "blob"
        filesystem, inside = path_in(path)
        parameters = parse_query(query)
        method = wire.headers.get("X-Http-Method-Override", wire.method).upper()
        request = Request("dfs", method, wire.method, raw, filesystem, inside, parameters, wire.headers)
        request.endpoint = endpoint or ("blob" if blob.is_blob_call(request) else "dfs")
        request.secure = wire.secure
        request.peer = wire.remote or ""
        return request

    async def _serve(self, request: Request, entry: LoggedRequest) -> Answer | None:
        """The answer after faults and rate limit; None to drop the connection."""
        conduct = self.conduct
        throttled = not conduct.limit.admit()
        conduct.counters.count(request.operation, throttled=throttled)
        if throttled:
            after = self.settings.retry_after
            raise ServiceError("ServerBusy", headers={} if after is None else {"Retry-After": f"{after:g}"})
        identity = entry.client_request_id or f"{request.method} {entry.path} {entry.source}"
        faults = conduct.faults_for(request.operation, entry.path, identity)
        if not faults:
            return self._answer(request)
        entry.faults = tuple(fault.kind for fault in faults)
        for fault in faults:
            if fault.kind == "latency":
                await asyncio.sleep(fault.seconds)
            elif fault.kind == "reset":
                return None
            elif fault.kind == "error":
                raise _as_error(fault)
        try:
            answer = self._answer(request)
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

    def _answer(self, request: Request) -> Answer:
        grant = self._authority.authorise(request)
        if request.endpoint == "blob":
            return self._blob.answer(request, grant)
        return self._dfs.answer(request, grant)

    def _refusal(self, endpoint: Endpoint, method: str, error: ServiceError, request_id: str) -> Answer:
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "0Z")
        code, content_type, body = (blob_body if endpoint == "blob" else dfs_body)(error, request_id, moment)
        headers = {"x-ms-error-code": code, **error.headers}
        if method == "HEAD" or error.status == 304:
            return Answer(error.status, headers)
        return Answer(error.status, {"Content-Type": content_type, **headers}, body)

    def _response(
        self, wire: web.BaseRequest, endpoint: Endpoint, answer: Answer, entry: LoggedRequest
    ) -> web.Response:
        headers = answer.headers
        headers["Server"] = _SERVER_NAME[endpoint]
        headers["Date"] = self._clock.now()
        headers["x-ms-request-id"] = entry.request_id
        version = wire.headers.get("x-ms-version")
        if version is not None:
            headers["x-ms-version"] = version
        if entry.client_request_id:
            headers["x-ms-client-request-id"] = entry.client_request_id
        return web.Response(body=answer.body or None, status=answer.status, headers=headers)


def _as_error(fault: Fault) -> ServiceError:
    headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    return ServiceError(fault.code or "InternalError", fault.message, status=fault.status, headers=headers)


@asynccontextmanager
async def serve(
    settings: Settings | None = None, *, port: int = 0, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[AdlsEmulator]:
    """Serves an account on 127.0.0.1 while the block runs.

    Args:
        settings: The account; the published development account by default.
        port: Where; 0 picks a free one.
        ssl_context: Serves TLS with it.

    Raises:
        OSError: The port is taken.
    """
    emulator = AdlsEmulator(settings or Settings())
    async with listening(emulator.handle, port, ssl_context) as address:
        emulator.url = f"{address}/{emulator.settings.account}"
        yield emulator

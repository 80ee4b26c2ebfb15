"""A proxy before a server that loses answers after their effect, requests before it, or answers itself."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import aiohttp
from aiohttp import web
from yarl import URL

_FORBID = "x-oss-forbid-overwrite"

Kind = Literal["lose answer", "lose request", "cut answer", "answer", "fail after"]


@dataclass
class Trouble:
    """What happens to requests.

    Attributes:
        kind: ``lose answer``: done, and the connection ends. ``lose request``: not done, and it ends. ``cut answer``:
            done, status and headers come, and half of the body. ``answer``: not done, and answered so. ``fail after``:
            done, and answered so.
        method: The method of those it happens to.
        query: What their query has in it.
        header: The header that they have, in lower case.
        times: How often.
        status: Of the answer.
        headers: Of the answer.
        body: Of the answer.
        delay_s: How long an ``answer`` takes.
    """

    kind: Kind
    method: str = ""
    query: str = ""
    header: str = ""
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    delay_s: float = 0.0


@dataclass(frozen=True)
class Forgotten:
    """A header that a server does not know: it never sees it. (One that checks signatures would.)

    Attributes:
        method: The method of the requests.
        header: The header, in lower case.
        query: What their query has in it.
    """

    method: str
    header: str
    query: str = ""


@dataclass
class Seen:
    """A request that came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


class Proxy:
    """One that runs.

    Attributes:
        url: Where.
        troubles: What happens; the first that fits a request.
        forgets: Headers that the server never sees.
        drops: What a query has in it, and a parameter of such queries that the server never sees.
        seen: The requests that came.
        damaged: How many bodies are changed on their way, from now on.
        speaks_oss: Whether it answers as Alibaba Cloud OSS does to requests that must replace nothing: it takes
            `x-oss-forbid-overwrite` for `If-None-Match: *`, and says 409 and FileAlreadyExists.
    """

    def __init__(self, upstream: str) -> None:
        self.url = ""
        self.troubles: list[Trouble] = []
        self.forgets: list[Forgotten] = []
        self.drops: tuple[str, str] = ("", "")
        self.seen: list[Seen] = []
        self.damaged = 0
        self.speaks_oss = False
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    def count(self, method: str, query: str = "") -> int:
        """How many requests of a kind came."""
        return sum(one.method == method and query in one.query for one in self.seen)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = request.raw_path
        path, _, query = raw.partition("?")
        self.seen.append(
            Seen(request.method, path, query, {name.lower(): text for name, text in request.headers.items()})
        )
        trouble = self._trouble(request, query)
        body = await request.content.read()
        if trouble is not None and trouble.kind == "answer":
            await asyncio.sleep(trouble.delay_s)
            return self._answer(trouble)
        if trouble is not None and trouble.kind == "lose request":
            return self._hang_up(request)
        if self.damaged and body:
            self.damaged -= 1
            body = bytes([body[0] ^ 1]) + body[1:]
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(self._upstream + self._kept_query(path, query), encoded=True),
            # The host stays that of the request, which is signed.
            headers=self._kept(request, query),
            data=io.BytesIO(body) if body else None,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            allow_redirects=False,
        ) as answer:
            content = await answer.read()
            if answer.status == 412 and _FORBID in request.headers:
                return web.Response(status=409, text=refusal("FileAlreadyExists"), content_type="application/xml")
            if trouble is not None and trouble.kind == "lose answer":
                return self._hang_up(request)
            if trouble is not None and trouble.kind == "fail after":
                return self._answer(trouble)
            headers = {
                name: text for name, text in answer.headers.items() if name.lower() not in ("transfer-encoding", "date")
            }
            if request.method != "HEAD":
                headers["Content-Length"] = str(len(content))
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            if trouble is not None:
                await response.write(content[: len(content) // 2])
                return self._hang_up(request)
            if content:
                await response.write(content)
            await response.write_eof()
            return response

    def _kept_query(self, path: str, query: str) -> str:
        having, parameter = self.drops
        if having and having in query:
            query = "&".join(one for one in query.split("&") if not one.startswith(f"{parameter}="))
        return f"{path}?{query}" if query else path

    def _kept(self, request: web.BaseRequest, query: str) -> list[tuple[str, str]]:
        unknown = {one.header for one in self.forgets if one.method == request.method and one.query in query}
        kept = [(name, text) for name, text in request.headers.items() if name.lower() not in unknown]
        if self.speaks_oss and any(name.lower() == _FORBID for name, _text in kept):
            kept.append(("If-None-Match", "*"))
        return kept

    def _trouble(self, request: web.BaseRequest, query: str) -> Trouble | None:
        for trouble in self.troubles:
            fits = trouble.method in ("", request.method) and trouble.query in query
            if trouble.times > 0 and fits and (not trouble.header or trouble.header in request.headers):
                trouble.times -= 1
                return trouble
        return None

    @staticmethod
    def _answer(trouble: Trouble) -> web.Response:
        return web.Response(status=trouble.status, headers=trouble.headers, body=trouble.body.encode())

    @staticmethod
    def _hang_up(request: web.BaseRequest) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


@asynccontextmanager
async def proxy_to(upstream: str) -> AsyncIterator[Proxy]:
    """A proxy on 127.0.0.1, at a port of its own."""
    proxy = Proxy(upstream)
    server = web.Server(proxy.handle)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        proxy._session = session
        try:
            yield proxy
        finally:
            await runner.cleanup()


def refusal(code: str) -> str:
    """A body that says why."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>said so</Message></Error>'

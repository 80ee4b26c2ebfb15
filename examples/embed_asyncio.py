"""Commits inside a running asyncio service: its own TaskGroup, its own HTTP session, two jobs at once.

    python examples/embed_asyncio.py [DIRECTORY]

The service exports reports: each export is one job, each part of it one task attempt, fetched from an HTTP server and
written to the destination. Exports run side by side in the service's TaskGroup. One is cancelled half way: it takes
back what it wrote; the other exports and the session do not notice.

The library starts no loop of its own here. It runs where it is awaited, never blocks the loop it runs on, uses the
session it is given (a store that speaks HTTP does, the local disk has no use for it), and leaves that open.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

import committer

PARTS = 4


class Source:
    """The HTTP server the data comes from. One of its parts is answered only when told to."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.release = asyncio.Event()

    async def part(self, request: web.Request) -> web.Response:
        report, number = request.match_info["report"], int(request.match_info["number"])
        if report == "slow" and number == PARTS - 1:
            self.waiting.set()
            await self.release.wait()
        rows = [f"{report},{number},{row}" for row in range(1000)]
        return web.Response(text="\n".join(["report,part,row", *rows]))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/{report}/{number}", self.part)
        async with serving(app) as address:
            yield address


class ExportService:
    """Runs exports in its TaskGroup: PUT starts one, GET waits for its state, DELETE cancels it."""

    def __init__(self, group: asyncio.TaskGroup, session: aiohttp.ClientSession, source: str, root: str) -> None:
        self.group = group
        self.session = session
        self.source = source
        self.root = root
        self.exports: dict[str, asyncio.Task[committer.JobReport | None]] = {}

    async def export(self, name: str) -> committer.JobReport | None:
        options = {"http_session": self.session}
        async with committer.open_job(f"{self.root}/{name}", storage_options=options) as job:
            # The parts have a group of their own, so that cancelling this export cancels them, and only them.
            async with asyncio.TaskGroup() as parts:
                for number in range(PARTS):
                    parts.create_task(self.fetch(job, name, number))
            # Not reached when a part failed or the export was cancelled: then leaving the block aborts the job.
            await job.commit(tasks=PARTS)
        return job.report

    async def fetch(self, job: committer.Job, name: str, number: int) -> None:
        async with (
            job.task_attempt(task=number) as task,
            task.open(f"part={number}/{name}.csv") as file,
            self.session.get(f"{self.source}/{name}/{number}") as response,
        ):
            response.raise_for_status()
            async for chunk in response.content.iter_chunked(1 << 16):
                await file.write(chunk)

    async def put(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.exports[name] = self.group.create_task(self.export(name), name=name)
        return web.json_response({"export": name}, status=202)

    async def get(self, request: web.Request) -> web.Response:
        export = self.exports[request.match_info["name"]]
        await asyncio.wait([export])
        if export.cancelled():
            return web.json_response({"state": "cancelled"})
        report = export.result()
        assert report is not None
        return web.json_response({"state": "committed", "files": report.files_committed, "job": report.job_id})

    async def delete(self, request: web.Request) -> web.Response:
        self.exports[request.match_info["name"]].cancel()
        return web.Response(status=204)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        resource = app.router.add_resource("/exports/{name}")
        resource.add_route("PUT", self.put)
        resource.add_route("GET", self.get)
        resource.add_route("DELETE", self.delete)
        async with serving(app) as address:
            yield address


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """Serves an application on a free port of this machine."""
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def main(root: str) -> None:
    source = Source()
    async with (
        aiohttp.ClientSession() as session,  # the service's own, given to the library
        aiohttp.ClientSession() as user,  # a client of the service
        source.running() as data,
        asyncio.TaskGroup() as group,
        ExportService(group, session, data, root).running() as address,
    ):

        async def call(method: str, name: str) -> dict[str, object]:
            async with user.request(method, f"{address}/exports/{name}") as response:
                return await response.json() if response.status != 204 else {}

        for name in ("slow", "weekly", "daily"):
            await call("PUT", name)
        print("three exports run in the service's TaskGroup")
        await source.waiting.wait()
        for name in ("weekly", "daily"):
            answer = await call("GET", name)
            print(f"{name}: {answer['state']}, {answer['files']} files")

        print("slow: still waits for its last part, so it is cancelled from outside")
        await call("DELETE", "slow")
        answer = await call("GET", "slow")
        print(f"slow: {answer['state']}, jobs left behind: {await committer.list_jobs(f'{root}/slow')}")
        try:
            await committer.validate(f"{root}/slow")
        except committer.CommitterError as error:
            print(f"slow: nothing was published ({type(error).__name__})")
        print(f"the service's session is {'closed' if session.closed else 'still open'}")

        source.release.set()
        await call("PUT", "slow")
        answer = await call("GET", "slow")
        print(f"slow, started again with the same session: {answer['state']}, {answer['files']} files")
        for name in ("daily", "slow", "weekly"):
            report = await committer.validate(f"{root}/{name}")
            print(f"{name}: {report.files} files compared with _SUCCESS, {'all good' if report.ok else report}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(main(directory))

"""Keys for S3 that a service gives for a while, and a store that works with the keys it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from aiohttp import web

from committer.paths import StorePath
from committer.stores.s3 import S3Store
from tests.s3.servers import KEY, KEY_ID

TOKEN = "FwoGZXIvYXdzCANARYTOKEN//////////wEa"


async def works(store: S3Store, root: StorePath) -> None:
    await store.put(root / "file=1", b"1")
    assert await store.read(root / "file=1", limit=9) == b"1"
    await store.delete_file(root / "file=1")
    await store.close()


@asynccontextmanager
async def giving_keys(lifetime_s: float) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that gives keys as containers get theirs; its URL, and the tokens it gave."""
    given: list[str] = []

    async def give(_request: web.BaseRequest) -> web.Response:
        given.append(f"{TOKEN}{len(given)}")
        end = datetime.now(UTC) + timedelta(seconds=lifetime_s)
        found = {"AccessKeyId": KEY_ID, "SecretAccessKey": KEY, "Token": given[-1], "Expiration": end.isoformat()}
        return web.json_response(found)

    runner = web.ServerRunner(web.Server(give))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/keys", given
    finally:
        await runner.cleanup()

"""A service that takes resumable uploads, keeps their lengths and forgets their bytes, for streams longer than memory.

python discarding_bucket.py        # prints its URL; ends with its stdin
"""

from __future__ import annotations

import asyncio
import re
import sys

from aiohttp import web

_SPAN = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Discarding:
    """One upload at a time.

    Attributes:
        come: How many of its bytes have come.
        longest: The longest request body.
    """

    def __init__(self) -> None:
        self.come = 0
        self.longest = 0
        self._metadata: object = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        length = 0
        if request.method == "POST":
            self.come, self.longest, self._metadata = 0, 0, (await request.json())["metadata"]
            return web.Response(headers={"Location": f"http://{request.host}/upload?upload_id=1"})
        async for part in request.content.iter_chunked(1 << 20):
            length += len(part)
        if request.method != "PUT":
            return web.Response(status=404, body=b"No such object: data/x")
        self.longest = max(self.longest, length)
        span = _SPAN.fullmatch(request.headers["Content-Range"])
        assert span is not None
        assert span[1] is None or int(span[1]) == self.come
        self.come += length
        if span[3] != str(self.come):
            return web.Response(status=308, headers={"Range": f"bytes=0-{self.come - 1}"})
        return web.json_response(
            {"size": str(self.come), "generation": str(self.longest), "metadata": self._metadata, "crc32c": "x"}
        )


async def main() -> None:
    runner = web.ServerRunner(web.Server(Discarding().handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("http://{}:{}".format(*runner.addresses[0]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())

"""Limits of the bytes of a response body. aiohttp limits the head to 128 headers of 8 KiB."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import aiohttp

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

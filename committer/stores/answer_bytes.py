"""How many bytes of an answer's body are read. (aiohttp bounds its head: 128 headers of 8 KiB.)."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import aiohttp

PAGE_BYTES: Final = 64 << 20
"""Of an answer to a request that changes nothing: 5,000 blobs, the largest page, with all metadata they may have."""

CHANGE_BYTES: Final = 8 << 20
"""Of an answer to a request that changes something: 1,000 errors of a batch, with keys as long as they may be."""

ERROR_BYTES: Final = 1 << 20
"""Of a refusal: what follows is left out."""


class AnswerTooLongError(aiohttp.ClientError):
    """An answer has more bytes than any has of its kind."""


async def body_of(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Reads a body to its end; None, with the connection closed, where it is longer than `most` bytes.

    A length that the head tells is believed: nothing of such a body is read. Of a refusal `ERROR_BYTES` are read.
    """
    refused = response.status >= 300
    # Which, unlike a list that is joined at the end, never holds the body twice.
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
        # Of one that was read to its end the connection is kept already.
        response.close()

"""Checksums of bodies as S3 takes and keeps them ("Checking object integrity" in the S3 user guide)."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from typing import Final

from committer.stores.http import Body

ALGORITHMS: Final = ("CRC32", "SHA1", "SHA256")
"""Those of Hadoop's ``fs.s3a.create.checksum.algorithm`` that Python computes itself: CRC32C is none of them."""


def checksum(algorithm: str, data: Body) -> str:
    """The checksum of a body, in base64; of a long one to be made in a thread."""
    if algorithm == "CRC32":
        raw = zlib.crc32(data).to_bytes(4, "big")
    else:
        raw = hashlib.new(algorithm, data, usedforsecurity=False).digest()
    return base64.b64encode(raw).decode()


def header_of(algorithm: str) -> str:
    """The header that carries such a checksum."""
    return f"x-amz-checksum-{algorithm.lower()}"


def element_of(algorithm: str) -> str:
    """The XML element that carries such a checksum."""
    return f"Checksum{algorithm}"


def checksum_in(elements: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Algorithm and checksum that an element of a listing tells; None twice where it tells none."""
    for algorithm in (*ALGORITHMS, "CRC32C", "CRC64NVME"):
        found = elements.get(element_of(algorithm))
        if found:
            return algorithm, found
    return None, None


def md5_of(data: Body) -> str:
    """What ``Content-MD5`` says of a body."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()

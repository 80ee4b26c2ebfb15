"""XML bodies and checksums of requests to S3."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import unescape
from typing import Final
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

from committer.stores.http import Body
from committer.stores.http_answers import iso_moment_of
from committer.stores.uploads import UploadPart

ALGORITHMS: Final = ("CRC32", "SHA1", "SHA256")
"""Algorithms of Hadoop's ``fs.s3a.create.checksum.algorithm`` that Python computes itself; CRC32C is not."""


def checksum(algorithm: str, data: Body) -> str:
    """Returns the checksum of a body in base64; for a long one to be called in a thread."""
    if algorithm == "CRC32":
        raw = zlib.crc32(data).to_bytes(4, "big")
    else:
        raw = hashlib.new(algorithm, data, usedforsecurity=False).digest()
    return base64.b64encode(raw).decode()


def header_of(algorithm: str) -> str:
    """Returns the name of a checksum's header."""
    return f"x-amz-checksum-{algorithm.lower()}"


def element_of(algorithm: str) -> str:
    """Returns the name of a checksum's XML element."""
    return f"Checksum{algorithm}"


def part_in(told: Mapping[str, str]) -> UploadPart:
    """Returns a part of an upload from a listing; raises `ValueError` for texts that are no numbers."""
    algorithm = next((one for one in (*ALGORITHMS, "CRC32C", "CRC64NVME") if told.get(element_of(one))), None)
    proof = told[element_of(algorithm)] if algorithm is not None else None
    return UploadPart(
        int(told.get("PartNumber", "")), told.get("ETag", "").strip('"'), int(told.get("Size", "0")), proof, algorithm
    )


def md5_of(data: Body) -> str:
    """Returns a body's ``Content-MD5``."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
# A parser normalises line ends, and drops characters that XML cannot hold.
_ESCAPES: Final = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;", '"': "&quot;"}
_ETAG: Final = re.compile(r"[\w+/=.-]+", re.ASCII)
_NO_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def element_in(body: bytes, name: str) -> str:
    """Returns the text of the first element of a name, if short, else nothing; a fast parser for flat responses."""
    found = _pattern(name).search(body)
    # Most responses escape nothing but the quotes of an etag.
    text = found[1].decode("utf-8", "replace").replace("&quot;", '"') if found else ""
    return unescape(text) if "&" in text else text


@lru_cache(maxsize=32)
def _pattern(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"<%b>([^<]{1,2048})</%b>" % (name.encode(), name.encode()))


def completion(parts: Sequence[UploadPart]) -> bytes:
    """Builds the body of "CompleteMultipartUpload"."""
    lines = [
        f"<Part><ETag>&quot;{_text(part.etag)}&quot;</ETag><PartNumber>{part.number:d}</PartNumber>{_checksum(part)}"
        "</Part>"
        for part in parts
    ]
    return f'<CompleteMultipartUpload xmlns="{_NAMESPACE}">{"".join(lines)}</CompleteMultipartUpload>'.encode()


def _checksum(part: UploadPart) -> str:
    if part.checksum is None or part.checksum_algorithm is None:
        return ""
    name = _text(element_of(part.checksum_algorithm))
    return f"<{name}>{_text(part.checksum)}</{name}>" if name.isalnum() else ""


def deletion(etags: Mapping[str, str | None]) -> bytes:
    """Builds the body of "DeleteObjects", by key the required etag or None; the response names only failures."""
    objects = "".join([f"<Object><Key>{_text(key)}</Key>{_condition(etag)}</Object>" for key, etag in etags.items()])
    return f'<Delete xmlns="{_NAMESPACE}">{objects}<Quiet>true</Quiet></Delete>'.encode()


def _condition(etag: str | None) -> str:
    return "" if etag is None else f"<ETag>&quot;{_text(etag)}&quot;</ETag>"


def is_etag(text: str) -> bool:
    """Returns True if a text can be one file's etag: `*`, which a forged record could hold, matches any file."""
    return _ETAG.fullmatch(text) is not None


def can_be_text(key: str) -> bool:
    """Returns True if XML can hold a key."""
    return _NO_XML.search(key) is None


def key_in(text: str, encoding: str) -> str:
    """Decodes a key or prefix of a listing requested with ``encoding-type=url``, which a service may ignore."""
    return unquote_plus(text) if encoding == "url" else text


def moment_in(text: str) -> float | None:
    """Parses a time to seconds since the epoch, without fractions, which the header of the same file lacks."""
    moment = iso_moment_of(text)
    return None if moment is None else float(int(moment))


def _text(value: str) -> str:
    return value if value.isalnum() else escape(value, _ESCAPES)

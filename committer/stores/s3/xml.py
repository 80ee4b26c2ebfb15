"""XML and checksums of requests to S3."""

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


_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
# A parser makes line ends one, and drops what it may not hold at all.
_ESCAPES: Final = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;", '"': "&quot;"}
_ETAG: Final = re.compile(r"[\w+/=.-]+", re.ASCII)
_NO_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def element_in(body: bytes, name: str) -> str:
    """The text of the first element of that name, as long as it is short; empty without one.

    (Of answers that are one element deep, and made once for every file.)
    """
    found = _pattern(name).search(body)
    # The quotes of an etag are all that most answers escape.
    text = found[1].decode("utf-8", "replace").replace("&quot;", '"') if found else ""
    return unescape(text) if "&" in text else text


@lru_cache(maxsize=32)
def _pattern(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"<%b>([^<]{1,2048})</%b>" % (name.encode(), name.encode()))


def completion(parts: Sequence[UploadPart]) -> bytes:
    """The body of "CompleteMultipartUpload"."""
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
    """The body of "DeleteObjects"; only what was not deleted is answered.

    Args:
        etags: By key, the etag that the file must have; None where any may go.
    """
    objects = "".join([f"<Object><Key>{_text(key)}</Key>{_condition(etag)}</Object>" for key, etag in etags.items()])
    return f'<Delete xmlns="{_NAMESPACE}">{objects}<Quiet>true</Quiet></Delete>'.encode()


def _condition(etag: str | None) -> str:
    return "" if etag is None else f"<ETag>&quot;{_text(etag)}&quot;</ETag>"


def is_etag(text: str) -> bool:
    """Whether a text can be one file's etag: `*` would be any file's, and what a record says is not trusted."""
    return _ETAG.fullmatch(text) is not None


def can_be_text(key: str) -> bool:
    """Whether XML can hold a key."""
    return _NO_XML.search(key) is None


def key_in(text: str, encoding: str) -> str:
    """A key or prefix of a listing that was asked for with ``encoding-type=url``, and maybe answered so."""
    return unquote_plus(text) if encoding == "url" else text


def moment_in(text: str) -> float | None:
    """Seconds since the epoch, of whole seconds: what the header of the same file says is no finer."""
    moment = iso_moment_of(text)
    return None if moment is None else float(int(moment))


def _text(value: str) -> str:
    # Most etags and checksums of parts are.
    return value if value.isalnum() else escape(value, _ESCAPES)

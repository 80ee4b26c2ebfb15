"""Reading the many URIs of one record at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from committer.errors import InvalidPathError
from committer.paths import StorePath
from committer.records.hadoop_json import bad_record
from committer.uri_text import URI_PLAIN, decode_uri_path

_CHUNK: Final = 1024
_PLAIN_LINES: Final = URI_PLAIN + b"\n"
_AFTER_SLASH: Final = bytes.maketrans(b".\n", b"//")


def read_uris(uris: Sequence[str], *, field: str, what: str, source: str) -> list[str]:
    """Reads every URI and gives its canonical text: what ``str(StorePath.from_uri(uri))`` would be.

    Texts of two URIs are equal exactly when the URIs mean one path, however they were spelled. About 0.2 microseconds
    each while nothing is escaped and all begin alike, about 1 otherwise.

    Args:
        uris: The textual URIs.
        field: Where they stand in the record, with ``%d`` for the index.
        what: What the record is called.
        source: Where the record came from.

    Raises:
        RecordError: One is malformed, or has an unescaped ``?`` or ``#``: Java drops what follows, so a file would be
            published under a name that its writer did not mean.
    """
    texts: list[str] = []
    known: dict[str, str] = {}
    for start in range(0, len(uris), _CHUNK):
        chunk = uris[start : start + _CHUNK]
        read = _read_plain(chunk)
        if read is None:
            read = []
            for index, uri in enumerate(chunk, start):
                try:
                    read.append(_read_one(uri, known))
                except InvalidPathError as error:
                    raise bad_record(what, field % index, f"{error.message}: {uri!a}", source=source) from error
        texts += read
    return texts


def plain_names_below(base: StorePath, uris: Sequence[str]) -> list[str] | None:
    """The names below `base`, when one look at all URIs proves that each is spelled as `StorePath.uri` spells it.

    Nearly all records are written so, and then nothing has to be read one by one: about 0.2 microseconds each.

    Returns:
        None when something may have to be decoded or normalised, or lies elsewhere; `read_uris` tells.
    """
    try:
        prefix = base.uri if base.path == "/" else f"{base.uri}/"
    except InvalidPathError:
        return None
    cut = len(prefix)
    names = [uri[cut:] for uri in uris if uri.startswith(prefix)]
    if len(names) != len(uris):
        return None
    if not names:
        return names
    lines = "\n".join(("", *names, ""))
    if not lines.isascii():
        return None
    data = lines.encode()
    if (
        data.translate(None, _PLAIN_LINES)
        or data.count(b"\n") != len(names) + 1
        # Empty or relative segments have a slash, or an end, beside another one or beside a period. So have names with
        # a period at the end of a segment, or two in a row, which are harmless but rare.
        or b"//" in data.translate(_AFTER_SLASH)
    ):
        return None
    return names


def cut_prefix(base: StorePath) -> int:
    """How many characters of a URI that `plain_names_below` accepted come before the name."""
    return len(base.uri) + (base.path != "/")


def _read_plain(chunk: Sequence[str]) -> Sequence[str] | None:
    """The texts when one look at the whole chunk proves that nothing has to be decoded or normalised; else None."""
    try:
        first = StorePath.from_uri(chunk[0])
    except InvalidPathError:
        return None
    head = chunk[0].removesuffix(first.path)
    lines = "\n".join(("", *chunk, ""))
    if not head.startswith(f"{first.scheme}:") or not lines.isascii():
        return None
    data, count = lines.encode(), len(chunk)
    if (
        data.translate(None, _PLAIN_LINES)
        or data.count(b"\n") != count + 1
        or data.count(f"\n{head}/".encode()) != count
        # What has to be normalised has a slash before another, before a period or at its end.
        or data.translate(_AFTER_SLASH).count(b"//") != count * head.count("//")
    ):
        return None
    canonical = str(first).removesuffix(first.path)
    return chunk if canonical == head else [canonical + uri[len(head) :] for uri in chunk]


def _read_one(uri: str, known: dict[str, str]) -> str:
    if "?" in uri or "#" in uri:
        raise InvalidPathError("a URI has an unescaped question mark or hash")
    directory, _, name = uri.rpartition("/")
    # An entry's directory is shared by many, so it is read once. A slash at its end may be the start of an authority.
    if directory and not directory.endswith("/") and name not in ("", ".", ".."):
        decoded = decode_uri_path(name)
        if decoded not in (".", "..") and "/" not in decoded and "\0" not in decoded:
            text = known.get(directory)
            if text is None:
                text = known[directory] = str(StorePath.from_uri(f"{directory}/")).removesuffix("/")
            return f"{text}/{decoded}"
    return str(StorePath.from_uri(uri))

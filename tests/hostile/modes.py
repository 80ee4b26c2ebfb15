"""The modes of a hostile service: a table of changes to requests and responses."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from tests.hostile.proxy import Exchange, HangUpError, Mode, Told

Change = Callable[[Told], Told]


@dataclass(frozen=True)
class Conduct:
    """A change that the proxy makes to requests or responses.

    Attributes:
        play: It itself.
        lies: Whether it says that something was done that was not, or the other way round, or shows what is not there.
            No engine can know better; it must end all the same, with an error that is typed, and harm no terminal.
    """

    play: Mode
    lies: bool = False


# -- ways to answer ----------------------------------------------------------------------------------------------------


def changed(change: Change) -> Mode:
    """The request is done, and its answer changed."""

    async def play(exchange: Exchange) -> None:
        await exchange.send(change(await exchange.forward()))

    return play


def refused(told: Told) -> Mode:
    """The request is not done, and answered so."""

    async def play(exchange: Exchange) -> None:
        await exchange.send(told)

    return play


def written(data: bytes, *, done: bool = True) -> Mode:
    """The bytes instead of an answer; then the connection ends."""

    async def play(exchange: Exchange) -> None:
        if done:
            await exchange.forward()
        await exchange.write(data)
        raise HangUpError

    return play


async def _doubled(exchange: Exchange, *, first: bool) -> None:
    told = [await exchange.forward(), await exchange.forward()]
    await exchange.send(told[0 if first else 1])


async def _again_later(exchange: Exchange) -> None:
    async def again() -> None:
        await asyncio.sleep(0.02)
        await exchange.forward()

    # Only what changes something: all else is repeated by the modes above.
    if exchange.method in ("PUT", "POST"):
        exchange.later(again())
    await exchange.send(await exchange.forward())


async def _closed(exchange: Exchange, *, done: bool) -> None:
    if done:
        await exchange.forward()
    raise HangUpError


async def _cut(exchange: Exchange, *, in_head: bool) -> None:
    told = await exchange.forward()
    data = told.head() if in_head else told.head() + told.body
    await exchange.write(data[: len(data) // 2] if in_head else data[: max(len(told.head()), len(data) - 8)])
    raise HangUpError


async def _delayed(exchange: Exchange) -> None:
    told = await exchange.forward()
    await asyncio.sleep(0.05)
    await exchange.send(told)


async def _trickles(exchange: Exchange) -> None:
    told = await exchange.forward()
    await exchange.trickle(told.head() + told.body, 0.05)


async def _silent(exchange: Exchange, *, done: bool) -> None:
    if done:
        await exchange.forward()
    await asyncio.sleep(30)
    raise HangUpError


async def _with_length(exchange: Exchange, length: str, *more: tuple[str, str]) -> None:
    told = (await exchange.forward()).with_headers({"Content-Length": length})
    told = Told(told.status, (*told.headers, *more), told.body)
    await exchange.send(told)
    raise HangUpError


async def _two_answers(exchange: Exchange) -> None:
    told = await exchange.forward()
    await exchange.send(told)
    await exchange.send(Told(200, (("Content-Length", "2"),), b"no"))


async def _in_chunks(exchange: Exchange, chunks: bytes) -> None:
    told = await exchange.forward()
    headers = tuple(one for one in told.headers if one[0].lower() != "content-length")
    await exchange.write(Told(told.status, (*headers, ("Transfer-Encoding", "chunked"))).head() + chunks)
    raise HangUpError


async def _endless_pages(exchange: Exchange, numbers: count[int], most: int = 40) -> None:
    """Each page names another one, with another token."""
    told = await exchange.forward()
    number = next(numbers)
    token = f"t{number}".encode() if number % most else b""
    await exchange.send(_next_page(told, token))


async def _alternating(exchange: Exchange, status: int) -> None:
    if exchange.number % 2:
        await exchange.send(_bare(status))
    else:
        await exchange.send(await exchange.forward())


# -- changes of answers ------------------------------------------------------------------------------------------------


def body_is(body: bytes, kind: str = "") -> Change:
    """Another body, where there is one."""
    more = {"Content-Type": kind} if kind else {}
    return lambda told: told.with_body(body).with_headers(more) if told.body else told


def header_is(name: str, text: str) -> Change:
    """Another header."""
    return lambda told: told.with_headers({name: text})


def without_header(*names: str) -> Change:
    """Headers are missing."""
    return lambda told: Told(told.status, tuple(one for one in told.headers if one[0].lower() not in names), told.body)


SIZES: Final = ("Size", "size", "contentLength", "Content-Length")
DATES: Final = ("LastModified", "Last-Modified", "Initiated", "updated", "lastModified", "Creation-Time", "timeCreated")
KEYS: Final = ("Key", "Name", "name")
ETAGS: Final = ("ETag", "Etag", "etag", "generation")
IDS: Final = ("UploadId", "Code", "code")


def field_is(names: tuple[str, ...], make: Callable[[bytes], bytes] | None) -> Change:
    """Members of XML and JSON have another text; without `make` they are missing."""
    alternatives = b"|".join(name.encode() for name in names)
    element = re.compile(rb"<(%b)>([^<]*)</\1>" % alternatives)
    member = re.compile(rb'"(%b)":\s*"?([^",}]*)"?(,?)' % alternatives)

    def in_element(match: re.Match[bytes]) -> bytes:
        return b"" if make is None else b"<%b>%b</%b>" % (match[1], make(match[2]), match[1])

    def in_member(match: re.Match[bytes]) -> bytes:
        if make is None:
            return b'"x":0%b' % match[3]
        return b'"%b":"%b"%b' % (match[1], make(match[2]), match[3])

    def change(told: Told) -> Told:
        body = element.sub(in_element, told.body)
        return told.with_body(member.sub(in_member, body) if body.lstrip()[:1] in (b"{", b"[") else body)

    return change


def _says(text: bytes) -> Callable[[bytes], bytes]:
    return lambda _old: text


def _next_page(told: Told, token: bytes) -> Told:
    if not told.body:
        return told
    body = re.sub(rb"<IsTruncated>\w+</IsTruncated>", b"<IsTruncated>true</IsTruncated>", told.body)
    for name in (b"NextContinuationToken", b"NextMarker"):
        body = re.sub(rb"<%b>[^<]*</%b>|<%b ?/>" % (name, name, name), b"", body)
        body = re.sub(rb"(</(?:ListBucketResult|EnumerationResults)>)", rb"<%b>%b</%b>\1" % (name, token, name), body)
    if body.startswith(b"{") and token:
        body = b'{"nextPageToken":"%b",' % token + body[1:] if len(body) > 2 else b'{"nextPageToken":"%b"}' % token
    return told.with_body(body).with_headers({"x-ms-continuation": token.decode()})


def _bare(status: int, **headers: str) -> Told:
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    return Told(status, tuple({"Content-Length": "0", **given}.items()))


def _error(code: str, status: int = 200) -> Told:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Told(status, (("Content-Type", "application/xml"),)).with_body(body)


def _json_error(code: str, status: int) -> Told:
    body = f'{{"error":{{"code":"{code}","message":"{code}","errors":[{{"reason":"{code}"}}]}}}}'.encode()
    headers = (("Content-Type", "application/json"), ("x-ms-error-code", code))
    return Told(status, headers).with_body(body)


BOMB: Final = (
    b'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "' + b"a" * 100 + b'">'
    + b"".join(b'<!ENTITY a%d "%b">' % (n, (b"&a%d;" % (n - 1) if n else b"&a;") * 10) for n in range(9))
    + b"]><ListBucketResult>&a8;</ListBucketResult>"
)  # fmt: skip
ESCAPES: Final = b"d/\xc2\x9b31m\xe2\x80\xae%1B[2J%07&#x9b;"
DEEP: Final = 100_000

# -- the table ---------------------------------------------------------------------------------------------------------

_CONNECTIONS: Final = {
    "sent twice, second answer": Conduct(partial(_doubled, first=False), lies=True),
    "sent twice, first answer": Conduct(partial(_doubled, first=True)),
    "sent again later": Conduct(_again_later),
    "answer delayed": Conduct(_delayed),
    "closed before the request arrived": Conduct(partial(_closed, done=False)),
    "closed after the request arrived": Conduct(partial(_closed, done=True)),
    "head cut": Conduct(partial(_cut, in_head=True)),
    "body cut": Conduct(partial(_cut, in_head=False)),
    "byte by byte": Conduct(_trickles),
    "no answer, done": Conduct(partial(_silent, done=True)),
    "no answer, not done": Conduct(partial(_silent, done=False)),
    "no HTTP": Conduct(written(b"SSH-2.0-OpenSSH_9.6\r\n" * 3)),
    "no HTTP, zeros": Conduct(written(b"\0" * 100)),
    "head too long": Conduct(written(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n")),
    "too many headers": Conduct(written(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000 + b"\r\n")),
    "two answers": Conduct(_two_answers, lies=True),
    "continue, and nothing": Conduct(written(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "length too long": Conduct(partial(_with_length, length="1000")),
    "length too short": Conduct(partial(_with_length, length="1"), lies=True),
    "length negative": Conduct(partial(_with_length, length="-1")),
    "length no number": Conduct(partial(_with_length, length="x")),
    "length enormous": Conduct(partial(_with_length, length="9" * 4400)),
    "lengths at odds": Conduct(lambda x: _with_length(x, "1", ("Content-Length", "7")), lies=True),
    "chunks are none": Conduct(partial(_in_chunks, chunks=b"zz\r\nno chunk\r\n")),
    "chunk negative": Conduct(partial(_in_chunks, chunks=b"-5\r\nno chunk\r\n0\r\n\r\n")),
    "chunks end early": Conduct(partial(_in_chunks, chunks=b"5\r\nno")),
}

_BODIES: Final = {
    "body empty": body_is(b""),
    "body garbage": body_is(b"\xff\xfe\0<%\x80" * 9),
    "body HTML": body_is(b"<!DOCTYPE html><html><body><h1>Log in</h1></body></html>", "text/html"),
    "body another document": body_is(b"<Other><Name>1</Name></Other>"),
    "body null": body_is(b"null"),
    "body list": body_is(b'[{"name":1}]'),
    "body of wrong types": body_is(b'{"items":{"a":1},"paths":7,"prefixes":[1],"name":[],"size":{},"error":3}'),
    "body bomb": body_is(BOMB),
    "body external entity": body_is(
        b'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY e SYSTEM "file:///etc/passwd">]><ListBucketResult>&e;'
        b"</ListBucketResult>"
    ),
    "body UTF-16 bomb": body_is(BOMB.decode().replace('"1.0"', '"1.0" encoding="UTF-16"').encode("utf-16")),
    "body encoding unknown": body_is(b'<?xml version="1.0" encoding="x-none"?><ListBucketResult/>'),
    "body encoding of several bytes": body_is(b'<?xml version="1.0" encoding="shift_jis"?><ListBucketResult/>'),
    "body deep XML": body_is(b"<ListBucketResult>" + b"<a>" * DEEP + b"</a>" * DEEP + b"</ListBucketResult>"),
    "body deep JSON": body_is(b'{"items":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "body number without end": body_is(b'{"items":[{"name":"x","size":' + b"9" * 5000 + b"}]}"),
    "gzip told, none": header_is("Content-Encoding", "gzip"),
    "encoding unknown": header_is("Content-Encoding", "zz"),
    "gzip bomb": lambda told: told.with_body(gzip.compress(b"\0" * 5_000_000)).with_headers(
        {"Content-Encoding": "gzip"}
    ),
}

_FIELDS: Final = {
    "size negative": field_is(SIZES, _says(b"-1")),
    "size without end": field_is(SIZES, _says(b"9" * 5000)),
    "size larger than any": field_is(SIZES, _says(b"9" * 40)),
    "size no number": field_is(SIZES, _says(b"1e3")),
    "size in other digits": field_is(SIZES, _says("١٢".encode())),
    "size missing": field_is(SIZES, None),
    "date is none": field_is(DATES, _says(b"yesterday")),
    "date before all": field_is(DATES, _says(b"0001-01-01T00:00:00+14:00")),
    "date after all": field_is(DATES, _says(b"9999-12-31T23:59:59-14:00")),
    "date with a long offset": field_is(DATES, _says(b"Thu, 01 Jan 1970 00:00:00 -9999999999")),
    "date missing": field_is(DATES, None),
    "key missing": field_is(KEYS, None),
    "key empty": field_is(KEYS, _says(b"")),
    "key elsewhere": field_is(KEYS, _says(b"elsewhere/x")),
    "key with dots": field_is(KEYS, lambda key: key.rpartition(b"/")[0] + b"/../../x"),
    "key with NUL": field_is(KEYS, lambda key: key + b"%00%0a"),
    "key not UTF-8": field_is(KEYS, lambda key: key + b"\xff\xfe"),
    "key a surrogate": field_is(KEYS, lambda key: key + b"\\ud800%ED%A0%80"),
    "key percent": field_is(KEYS, lambda key: key + b"%zz%F"),
    "key without end": field_is(KEYS, lambda key: key + b"/x" * 4000),
    "key escapes": field_is(KEYS, lambda key: key + ESCAPES),
    "etag another": field_is(ETAGS, _says(b"&quot;another&quot;")),
    "etag missing": field_is(ETAGS, None),
    "ids missing": field_is(IDS, None),
    "ids escape": field_is(IDS, _says(ESCAPES)),
    "head: etag missing": without_header("etag", "x-ms-request-id", "x-goog-generation"),
    "head: etag another": header_is("ETag", '"another"'),
    "head: etag odd": header_is("ETag", '"\u00e9\u0085\u202e"'),
    "head: date is none": header_is("Last-Modified", "yesterday"),
    "head: date after all": header_is("Last-Modified", "Fri, 31 Dec 99999 23:59:59 GMT"),
    "head: date with a long offset": header_is("Last-Modified", "Fri, 31 Dec 9999 23:59:59 -9999"),
    "head: date before all": header_is("Last-Modified", "Mon, 01 Jan 0001 00:00:00 +2359"),
    "head: all missing": without_header("etag", "last-modified", "x-ms-resource-type", "content-type"),
    "head: kind another": header_is("x-ms-resource-type", "symlink"),
    "token repeats": lambda told: _next_page(told, b"same"),
    "token missing": lambda told: _next_page(told, b""),
}

# Said of a request that was done, or not: of some of them neither is a lie.
_STATUSES: Final = {
    "100": _bare(100), "102": _bare(102), "101": _bare(101, Upgrade="x", Connection="upgrade"),
    "200": _bare(200), "201": _bare(201), "202": _bare(202), "204": _bare(204), "206": _bare(206),
    "300": _bare(300), "301 here": _bare(301, Location="/"), "302 elsewhere": _bare(302, Location="http://x.invalid/"),
    "303": _bare(303, Location="//"), "304": _bare(304), "307 nowhere": _bare(307),
    "307 to another region": _bare(307, x_amz_bucket_region="eu-central-1", Location="http://x.invalid/"),
    "308 no URL": _bare(308, Location="http://[::1/\x85"),
    "400": _bare(400), "401": _bare(401, WWW_Authenticate="Basic"), "402": _bare(402), "403": _bare(403),
    "404": _bare(404), "405": _bare(405), "407": _bare(407), "408": _bare(408), "409": _bare(409), "410": _bare(410),
    "411": _bare(411), "412": _bare(412), "413": _bare(413), "416": _bare(416), "418": _bare(418), "421": _bare(421),
    "428": _bare(428), "431": _bare(431), "451": _bare(451),
    "429 negative": _bare(429, Retry_After="-5"), "429 without end": _bare(429, Retry_After="9" * 5000),
    "429 a word": _bare(429, Retry_After="soon"), "429 a date": _bare(429, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    "500": _bare(500), "501": _bare(501), "502": _bare(502), "503": _bare(503),
    "503 with a wait": _bare(503, Retry_After="1e400"), "504": _bare(504), "507": _bare(507), "599": _bare(599),
    "600": _bare(600), "999": _bare(999), "000": _bare(0),
    "200 with an error": _error("InternalError"), "200 with an unknown error": _error("Whatever"),
    "403 with escapes": _error(ESCAPES.decode(), 403), "404 of the bucket": _error("NoSuchBucket", 404),
    "400 of a region": Told(400).with_body(b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>x</Region></Error>"),
    "500 in JSON": _json_error(ESCAPES.decode(), 500), "404 in JSON": _json_error("notFound", 404),
    "404 of the container": _json_error("FilesystemNotFound", 404),
}  # fmt: skip

# What says of a request that was not done truly that it was not, or leaves open whether it was.
_OPEN: Final = ("408", "500", "502", "504", "507", "599", "500 in JSON")
_TRUE_OF_UNDONE: Final = (*_OPEN, "400", "401", "402", "403", "405", "407", "409", "411", "413", "418", "421", "428",
                         "429 negative", "429 without end", "429 a word", "429 a date", "431", "451", "501", "503",
                         "503 with a wait", "403 with escapes")  # fmt: skip

MODES: Final[dict[str, Conduct]] = {
    **_CONNECTIONS,
    **{name: Conduct(changed(change), lies=True) for name, change in (_BODIES | _FIELDS).items()},
    "pages without end": Conduct(partial(_endless_pages, numbers=count(1)), lies=True),
    **{
        f"{name}, not done": Conduct(refused(told), lies=name not in _TRUE_OF_UNDONE)
        for name, told in _STATUSES.items()
    },
    **{
        f"{name}, done": Conduct(changed(lambda _old, told=told: told), lies=name not in _OPEN)  # type: ignore[misc]
        for name, told in _STATUSES.items()
    },
    "every other 503": Conduct(partial(_alternating, status=503)),
    "every other 429": Conduct(partial(_alternating, status=429)),
    "every other 400": Conduct(partial(_alternating, status=400)),
}

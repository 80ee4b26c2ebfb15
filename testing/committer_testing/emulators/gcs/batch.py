"""Batches: up to 100 calls in one request, each with an answer of its own ("Sending batch requests")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from multidict import CIMultiDict

from committer_testing.emulators.gcs import multipart
from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.wire import Answer

LIMIT: Final = 100
_BOUNDARY: Final = "batch_of_the_emulator"


@dataclass(frozen=True, slots=True)
class Call:
    """One of its calls.

    Attributes:
        identity: Its Content-ID; "" for none.
        method: GET, POST, ...
        target: Path and query.
        headers: Its own, and those of the batch that it does not set itself.
        body: What it carries.
    """

    identity: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def parse(headers: Mapping[str, str], body: bytes) -> list[Call]:
    """The calls in a batch.

    Raises:
        ServiceError: The body makes no sense, or holds none or too many calls.
    """
    boundary = multipart.boundary_of(headers.get("Content-Type", ""), "multipart/mixed")
    parts = multipart.split(body, boundary)
    if len(parts) > LIMIT:
        raise ServiceError("invalid", f"The batch has {len(parts)} calls; the limit is {LIMIT}.")
    outer = {name: headers[name] for name in ("Authorization", "Host", "User-Agent") if name in headers}
    return [_call(part, content, outer) for part, content in parts]


def joined(answers: Sequence[tuple[Call, Answer]]) -> Answer:
    """The answer to a batch: 200 whatever became of its calls."""
    pieces = []
    for call, answer in answers:
        identity = call.identity.strip("<>")
        head = [f"--{_BOUNDARY}", "Content-Type: application/http"]
        if identity:
            head.append(f"Content-ID: <response-{identity}>")
        phrase = HTTPStatus(answer.status).phrase if answer.status in set(HTTPStatus) else ""
        head += ["", f"HTTP/1.1 {answer.status} {phrase}"]
        shown = {**answer.headers, "Content-Length": str(len(answer.body))}
        head += [f"{name}: {value}" for name, value in shown.items()]
        pieces.append("\r\n".join([*head, "", ""]).encode() + answer.body + b"\r\n")
    body = b"".join(pieces) + f"--{_BOUNDARY}--\r\n".encode()
    return Answer(200, {"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"}, body)


def _call(part: Mapping[str, str], content: bytes, outer: Mapping[str, str]) -> Call:
    lines, body = multipart.head_and_rest(content)
    words = lines[0].split(" ") if lines else []
    if len(words) < 2:
        raise ServiceError("invalid", "A part of the batch is no HTTP request.")
    headers: CIMultiDict[str] = CIMultiDict(outer)
    headers.update(multipart.headers_in(lines[1:]))
    length = headers.get("Content-Length", "")
    if length.isdigit():
        body = body[: int(length)]
    return Call(part.get("content-id", ""), words[0], words[1], headers, body)

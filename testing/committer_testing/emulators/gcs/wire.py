"""A request as the handlers see it, taken apart once, and the answer they give."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, unquote_plus

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.preconditions import Preconditions

Endpoint = Literal["json", "upload"]


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        method: GET, POST, ...; that of `X-HTTP-Method-Override` where a client of Java's sends POST for PATCH.
        target: Path and query as sent.
        base: Scheme, address and port that the client knows the service by.
        segments: The parts of the path, decoded.
        query: Parameters by name, decoded.
        headers: Case does not matter.
        body: All of it.
        endpoint: Whether it came by the path for uploads.
        operation: What it asks for, in one word: "move", "list", ...; named by the router, as are the following.
        bucket: The bucket; "" for none.
        name: The object; "" for none.
        source: Bucket and object that a move or copy reads; None for others.
        described: The resource, media type and data that a whole or starting upload carries.
    """

    method: str
    target: str
    base: str
    segments: list[str]
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    endpoint: Endpoint = "json"
    operation: str = ""
    bucket: str = ""
    name: str = ""
    source: tuple[str, str] | None = None
    described: tuple[dict[str, Any], str, bytes] = field(default_factory=lambda: ({}, "", b""))

    @property
    def preconditions(self) -> Preconditions:
        """Those on the object in the URL."""
        return Preconditions(self.query)

    @property
    def source_preconditions(self) -> Preconditions:
        """Those on the source of a move or copy."""
        return Preconditions(self.query, "Source")

    @property
    def generation(self) -> int | None:
        """The generation it asks for; None for the live one."""
        return self.number("generation") if "generation" in self.query else None

    def parameter(self, name: str) -> str:
        """A query parameter it must have.

        Raises:
            ServiceError: required.
        """
        value = self.query.get(name)
        if not value:
            raise ServiceError("required", f"Required parameter: {name}")
        return value

    def number(self, name: str, default: int = 0) -> int:
        """A query parameter that is a number of 0 or more.

        Raises:
            ServiceError: invalid.
        """
        value = self.query.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit():
            raise ServiceError("invalid", f"Invalid value for {name}: {value}")
        return int(value)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false.

        Raises:
            ServiceError: invalid.
        """
        value = self.query.get(name, "false").lower()
        if value not in {"true", "false"}:
            raise ServiceError("invalid", f"Invalid value for {name}: {value}")
        return value == "true"

    def resource(self) -> dict[str, Any]:
        """The JSON object in the body; an empty body is an empty object.

        Raises:
            ServiceError: parseError.
        """
        body = self.body
        if self.headers.get("Content-Encoding") == "gzip":
            try:
                body = gzip.decompress(body)
            except (OSError, EOFError, zlib.error):
                raise ServiceError("parseError") from None
        return parse_resource(body)


@dataclass(slots=True)
class Answer:
    """What a handler gives back; the headers every answer has are added later."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer in JSON."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return Answer(status, {"Content-Type": "application/json; charset=UTF-8"}, body)


def parse_resource(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ServiceError: parseError.
    """
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        raise ServiceError("parseError") from None
    if not isinstance(value, dict):
        raise ServiceError("parseError")
    return value


def decoded_segments(path: str) -> list[str]:
    """The parts of an encoded path, each decoded by itself: a slash in an object's name comes as %2F.

    Raises:
        ServiceError: It is no UTF-8.
    """
    try:
        return [unquote(part, errors="strict") if "%" in part else part for part in path.lstrip("/").split("/")]
    except UnicodeDecodeError:
        raise ServiceError("invalid", "The path is not UTF-8.") from None


def parse_query(query: str) -> dict[str, str]:
    """Parameters by name; a plus sign is a space, as in forms.

    Raises:
        ServiceError: It is no UTF-8.
    """
    found = {}
    try:
        for part in query.split("&"):
            if part:
                name, _, value = part.partition("=")
                found[unquote_plus(name)] = unquote_plus(value, errors="strict")
    except UnicodeDecodeError:
        raise ServiceError("invalid", "The query is not UTF-8.") from None
    return found

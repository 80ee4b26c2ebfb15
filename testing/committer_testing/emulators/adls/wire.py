"""A request as the handlers see it, taken apart once, and the answer they give."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from committer_testing.emulators.adls.conditions import Conditions
from committer_testing.emulators.adls.errors import ServiceError

Endpoint = Literal["dfs", "blob"]

# A read gives back what was set with these, by the header's lower-case name; the DFS endpoint sets them as x-ms-NAME,
# the blob endpoint as x-ms-blob-NAME.
CONTENT_HEADERS = {
    "cache-control": "Cache-Control",
    "content-type": "Content-Type",
    "content-encoding": "Content-Encoding",
    "content-language": "Content-Language",
    "content-disposition": "Content-Disposition",
    "content-md5": "Content-MD5",
}


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        endpoint: Which of the account's endpoints it went to.
        method: GET, PUT, ... Hadoop's client, whose Java knows no PATCH, sends PUT and names the method it means in
            `X-Http-Method-Override`: this is the one it means.
        signed_method: The one it sent, which is what SharedKey signs.
        raw_path: The URL's path as sent, still encoded: what SharedKey signs.
        filesystem: The first part of the path in the account; "" for the account itself.
        path: The rest, decoded, without slashes at its ends.
        query: Parameters by lower-case name, decoded.
        headers: Case does not matter.
        secure: Whether it came over TLS.
        peer: The client's address.
        body: All of it.
        operation: What it asks for, in one word: "rename", "append", ...; named by the router.
    """

    endpoint: Endpoint
    method: str
    signed_method: str
    raw_path: str
    filesystem: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    secure: bool = False
    peer: str = ""
    body: bytes = b""
    operation: str = ""

    @property
    def conditions(self) -> Conditions:
        """Those on the path in the URL."""
        return Conditions(self.headers)

    @property
    def lease(self) -> str | None:
        """The lease id it carries; the official client sends an empty one for none."""
        return self.headers.get("x-ms-lease-id") or None

    def header(self, name: str) -> str:
        """A header it must have.

        Raises:
            ServiceError: MissingRequiredHeader.
        """
        value = self.headers.get(name)
        if value is None:
            raise ServiceError("MissingRequiredHeader")
        return value

    def parameter(self, name: str) -> str:
        """A query parameter it must have.

        Raises:
            ServiceError: MissingRequiredQueryParameter.
        """
        value = self.query.get(name)
        if value is None:
            raise ServiceError("MissingRequiredQueryParameter")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A query parameter that is true or false.

        Raises:
            ServiceError: InvalidQueryParameterValue.
        """
        value = self.query.get(name)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise ServiceError("InvalidQueryParameterValue")
        return value.lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """A query parameter that is a number of 0 or more.

        Raises:
            ServiceError: InvalidQueryParameterValue; MissingRequiredQueryParameter without a default.
        """
        value = self.query.get(name)
        if value is None and default is not None:
            return default
        text = self.parameter(name)
        if not text.isascii() or not text.isdigit():
            raise ServiceError("InvalidQueryParameterValue")
        return int(text)


@dataclass(slots=True)
class Answer:
    """What a handler gives back; the headers every answer has are added later."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def decode(text: str) -> str:
    """Percent-decodes a path or a parameter.

    Raises:
        ServiceError: InvalidUri.
    """
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ServiceError("InvalidUri") from None


def parse_query(query: str) -> dict[str, str]:
    """Parameters by lower-case name. A plus sign is a plus sign: both official clients encode a space as %20."""
    found = {}
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            found[decode(name).lower()] = decode(value)
    return found


def path_in(raw: str) -> tuple[str, str]:
    """Filesystem and path of an encoded path relative to the account.

    Raises:
        ServiceError: InvalidUri: it is no UTF-8, or a part of it is empty, "." or "..".
    """
    first, _, rest = raw.strip("/").partition("/")
    path = decode(rest).strip("/")
    if path:
        parts = path.split("/")
        if "" in parts or "." in parts or ".." in parts:
            raise ServiceError("InvalidUri")
    return decode(first), path


def metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    """User metadata as a blob call carries it, in x-ms-meta-NAME."""
    return {name[10:]: value for name, value in headers.items() if name.lower().startswith("x-ms-meta-")}


def parse_properties(text: str) -> dict[str, str]:
    """User metadata as a DFS call carries it: `name=base64,name=base64`.

    Raises:
        ServiceError: InvalidPropertyName, InvalidHeaderValue.
    """
    found = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, _, value = part.strip().partition("=")
        # "Metadata names must adhere to the naming rules for C# identifiers" ("Set Blob Metadata").
        if not name.isidentifier():
            raise ServiceError("InvalidPropertyName")
        try:
            # The documents want ISO-8859-1; the official client sends UTF-8, which is what it gets back.
            found[name] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise ServiceError("InvalidHeaderValue") from None
        if not found[name].isprintable():
            # The blob endpoint shows it in a header.
            raise ServiceError("InvalidHeaderValue")
    return found


def format_properties(properties: Mapping[str, str]) -> str:
    """The reverse of `parse_properties`."""
    return ",".join(f"{name}={base64.b64encode(value.encode()).decode()}" for name, value in properties.items())


def content_headers(headers: Mapping[str, str], prefix: str, old: Mapping[str, str]) -> dict[str, str]:
    """What a request sets of the headers a read gives back, over what was there."""
    found = dict(old)
    for name in CONTENT_HEADERS:
        value = headers.get(prefix + name)
        if value is not None:
            found[name] = value
    return found


def check_hash(request: Request) -> None:
    """Raises ServiceError if the body isn't what its Content-MD5 says."""
    given = request.headers.get("Content-MD5")
    if given is None:
        return
    try:
        wanted = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise ServiceError("InvalidMd5") from None
    if hashlib.md5(request.body, usedforsecurity=False).digest() != wanted:
        raise ServiceError("Md5Mismatch")

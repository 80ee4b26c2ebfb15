"""Shared access signatures, of the account and of a filesystem, directory or file: verified, and what they allow."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.wire import Request

# From this version on an encryption scope is part of both strings to sign.
_WITH_SCOPE = "2020-12-06"
# The oldest whose string to sign for a service SAS is the one below.
_OLDEST = "2018-11-09"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a SAS allows.

    Attributes:
        permissions: Its letters.
        resource_types: Of an account SAS: s, c, o; "" for a service SAS.
        filesystem: The only one a service SAS is for; None for an account SAS.
        path: The file or directory it is for; "" for the whole filesystem.
        tree: Whether what lies below `path` is meant, too.
    """

    permissions: str
    resource_types: str = ""
    filesystem: str | None = None
    path: str = ""
    tree: bool = True

    def require(self, letters: str, filesystem: str, path: str, *, kind: str = "o") -> None:
        """Raises ServiceError unless it grants one of the letters on this path.

        Args:
            letters: Each of which would do.
            filesystem: Where.
            path: Where in it.
            kind: What the call is on: `s`, the account; `c`, a filesystem; `l`, the listing of one, which unlike
                other calls on it a service SAS may grant; `o`, a path.
        """
        if self.filesystem is None:
            if {"l": "c"}.get(kind, kind) not in self.resource_types:
                raise ServiceError("AuthorizationResourceTypeMismatch")
        else:
            inside = path == self.path or not self.path or (self.tree and path.startswith(self.path + "/"))
            if kind in {"s", "c"} or filesystem != self.filesystem or not inside:
                raise ServiceError("AuthorizationFailure")
        if not any(letter in self.permissions for letter in letters):
            raise ServiceError("AuthorizationPermissionMismatch")


def verify(
    request: Request, query: Mapping[str, str], account: str, key: bytes, *, at: tuple[str, str] | None = None
) -> Grant:
    """Verifies a SAS and what binds it to the request: time, protocol, address.

    Stored access policies (si) and user delegation (skoid) are not emulated and fail.

    Args:
        request: The request.
        query: What holds the SAS.
        account: The account's name.
        key: Its key.
        at: Filesystem and path it is used on; the request's own by default.

    Raises:
        ServiceError: AuthenticationFailed, or which of its bounds the request is outside of.
    """
    version = query.get("sv", "")
    if version < _OLDEST or "si" in query or "skoid" in query:
        raise ServiceError("AuthenticationFailed")
    filesystem, path = at or (request.filesystem, request.path)
    if "ss" in query:
        grant = _account_grant(query, account, key)
    else:
        grant = _service_grant(query, account, key, filesystem, path)
    _check_time(query)
    if query.get("spr", "https,http") == "https" and not request.secure:
        raise ServiceError("AuthorizationProtocolMismatch")
    addresses = query.get("sip")
    if addresses and not _within(request.peer, addresses):
        raise ServiceError("AuthorizationSourceIPMismatch")
    return grant


def _account_grant(query: Mapping[str, str], account: str, key: bytes) -> Grant:
    fields = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]
    if query["sv"] >= _WITH_SCOPE:
        fields.append("ses")
    # Every field ends its line, the last one too ("Create an account SAS").
    _check_signature(query, "\n".join([account, *(query.get(name, "") for name in fields), ""]), key)
    if "b" not in query.get("ss", ""):
        raise ServiceError("AuthorizationServiceMismatch")
    return Grant(query.get("sp", ""), query.get("srt", ""))


def _service_grant(query: Mapping[str, str], account: str, key: bytes, filesystem: str, path: str) -> Grant:
    # The signed resource is not in the query: it follows from the URL, so that a SAS used elsewhere fails to verify.
    # A directory's SAS holds for what is below it; sdd says how many parts of the URL's path are that directory.
    kind = query.get("sr", "")
    if kind == "c":
        path = ""
    elif kind == "d":
        depth = query.get("sdd", "")
        parts = path.split("/") if path else []
        if not depth.isdigit() or int(depth) > len(parts):
            raise ServiceError("AuthenticationFailed")
        path = "/".join(parts[: int(depth)])
    elif kind != "b":
        raise ServiceError("AuthenticationFailed")
    resource = f"/blob/{account}/{filesystem}" + (f"/{path}" if path else "")
    fields = ["sip", "spr", "sv", "sr", "snapshot"]
    if query["sv"] >= _WITH_SCOPE:
        fields.append("ses")
    fields += ["rscc", "rscd", "rsce", "rscl", "rsct"]
    lines = [query.get("sp", ""), query.get("st", ""), query.get("se", ""), resource, ""]
    lines += [query.get(name, "") for name in fields]
    # The last field ends without a newline ("Create a service SAS").
    _check_signature(query, "\n".join(lines), key)
    return Grant(query.get("sp", ""), "", filesystem, path, tree=kind != "b")


def _check_signature(query: Mapping[str, str], text: str, key: bytes) -> None:
    expected = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256))
    if not hmac.compare_digest(expected, query.get("sig", "").encode()):
        raise ServiceError("AuthenticationFailed")


def _check_time(query: Mapping[str, str]) -> None:
    now = time.time()
    end = _moment(query.get("se"))
    start = _moment(query.get("st")) if "st" in query else None
    if end is None or now >= end or (start is not None and now < start):
        raise ServiceError("AuthenticationFailed")


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ServiceError("AuthenticationFailed") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _within(peer: str, addresses: str) -> bool:
    first, _, last = addresses.partition("-")
    try:
        address = ipaddress.ip_address(peer)
        return int(ipaddress.ip_address(first)) <= int(address) <= int(ipaddress.ip_address(last or first))
    except ValueError:
        return False

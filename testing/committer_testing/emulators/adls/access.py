"""Owner, mode and access control list of a path: parsed and set. Nothing is ever denied because of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.nodes import Node
from committer_testing.emulators.adls.wire import Request

_SYMBOLIC = re.compile(r"([r-][w-][x-]){2}[r-][w-][xtT-]\+?")
_OCTAL = re.compile(r"[01]?[0-7]{3}")
_ENTRY = re.compile(r"(default:)?(user|group|mask|other):([^:,]*):([r-][w-][x-])")
_REMOVED = re.compile(r"(default:)?(user|group|mask|other):?([^:,]*)")


def apply_new(request: Request, node: Node) -> None:
    """What a create says of owner, mode and list; the umask is 0027 unless it says otherwise ("Path - Create").

    Raises:
        ServiceError: InvalidHeaderValue; both a mode and a list.
    """
    headers = request.headers
    mode = headers.get("x-ms-permissions")
    if mode is not None:
        full = _bits(mode)
        masked = full & ~_octal(headers.get("x-ms-umask", "0027"))
        node.permissions = _text(masked)
    elif "x-ms-umask" in headers:
        node.permissions = _text((0o777 if node.is_directory else 0o666) & ~_octal(headers["x-ms-umask"]))
    apply(headers, node, mode=False)


def apply(headers: Mapping[str, str], node: Node, *, mode: bool = True) -> None:
    """Sets what the headers name: owner, group, and either the mode or the list.

    Raises:
        ServiceError: InvalidHeaderValue; both a mode and a list.
    """
    acl = headers.get("x-ms-acl")
    permissions = headers.get("x-ms-permissions")
    if acl is not None and permissions is not None:
        raise ServiceError("InvalidHeaderValue")
    if acl is not None:
        set_list(node, acl)
    elif permissions is not None and mode:
        node.permissions = _text(_bits(permissions))
        node.acl = None
    node.owner = headers.get("x-ms-owner", node.owner)
    node.group = headers.get("x-ms-group", node.group)


def set_list(node: Node, text: str) -> None:
    """Replaces the access control list; the mode follows its three base entries.

    Raises:
        ServiceError: InvalidHeaderValue: an entry makes no sense, or a base entry is missing.
    """
    entries = _entries(text)
    base = {kind: rights for (scope, kind, name), rights in entries.items() if not scope and not name}
    if not {"user", "group", "other"} <= base.keys():
        raise ServiceError("InvalidHeaderValue")
    sticky = node.permissions[8] if node.permissions[8] in "tT" else None
    # With a mask, the group part of a mode is the mask, as on any POSIX system.
    node.permissions = base["user"] + base.get("mask", base["group"]) + base["other"]
    if sticky:
        node.permissions = node.permissions[:8] + ("t" if node.permissions[8] == "x" else "T")
    extended = len(entries) > 3
    node.acl = ",".join(f"{scope}{kind}:{name}:{rights}" for (scope, kind, name), rights in entries.items())
    if not extended:
        node.acl = None


def change_list(node: Node, mode: str, text: str) -> None:
    """One step of a recursive change: `set` replaces, `modify` adds or changes, `remove` takes away.

    Raises:
        ServiceError: InvalidHeaderValue, InvalidQueryParameterValue.
    """
    if mode == "set":
        set_list(node, _for_kind(node, text))
        return
    entries = _entries(node.access_list)
    if mode == "modify":
        entries.update(_entries(_for_kind(node, text)))
    elif mode == "remove":
        for part in text.split(","):
            match = _REMOVED.fullmatch(part.strip())
            if match is None:
                raise ServiceError("InvalidHeaderValue")
            entries.pop((match[1] or "", match[2], match[3]), None)
    else:
        raise ServiceError("InvalidQueryParameterValue")
    set_list(node, ",".join(f"{scope}{kind}:{name}:{rights}" for (scope, kind, name), rights in entries.items()))


def _for_kind(node: Node, text: str) -> str:
    # Files have no default entries.
    if node.is_directory:
        return text
    return ",".join(part for part in text.split(",") if not part.startswith("default:"))


def _entries(text: str) -> dict[tuple[str, str, str], str]:
    found = {}
    for part in text.split(","):
        match = _ENTRY.fullmatch(part.strip())
        if match is None:
            raise ServiceError("InvalidHeaderValue")
        found[match[1] or "", match[2], match[3]] = match[4]
    return found


def _bits(mode: str) -> int:
    if _OCTAL.fullmatch(mode):
        return int(mode, 8)
    if not _SYMBOLIC.fullmatch(mode):
        raise ServiceError("InvalidHeaderValue")
    bits = 0
    for index, letter in enumerate(mode[:9]):
        if letter not in "-T":
            bits |= 1 << (8 - index)
    return bits | (0o1000 if mode[8] in "tT" else 0)


def _octal(text: str) -> int:
    if not re.fullmatch(r"[0-7]{3,4}", text):
        raise ServiceError("InvalidHeaderValue")
    return int(text, 8)


def _text(bits: int) -> str:
    text = "".join(letter if bits >> (8 - index) & 1 else "-" for index, letter in enumerate("rwxrwxrwx"))
    if bits & 0o1000:
        text = text[:8] + ("t" if text[8] == "x" else "T")
    return text

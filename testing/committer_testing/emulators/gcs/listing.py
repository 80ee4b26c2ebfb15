"""Listing a bucket, page by page."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from dataclasses import dataclass, field

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.objects import Bucket, StoredObject

# Behind almost every name that begins with what stands before it.
_BEHIND = "\U0010ffff"


@dataclass(slots=True)
class Page:
    """One page.

    Attributes:
        objects: In the order of their names.
        prefixes: What objects with a delimiter behind the prefix are gathered to.
        more: The token of the next page; None on the last.
    """

    objects: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    more: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a listing asks for ("Objects: list").

    Attributes:
        prefix: How names begin.
        delimiter: Names that hold it behind the prefix are gathered to one entry each; "" gathers none.
        trailing: Whether an object whose name ends in its only delimiter is an item beside being a prefix.
        start: Names from this one on, itself included.
        end: Names before this one; "" for all.
        token: That of the page before; "" for the first.
        limit: How many objects and prefixes at most.
    """

    prefix: str
    delimiter: str
    trailing: bool
    start: str
    end: str
    token: str
    limit: int

    def page(self, bucket: Bucket) -> Page:
        """One page; costs the page, not the bucket.

        Raises:
            ServiceError: The token is none of ours.
        """
        names = bucket.names()
        page = Page()
        left = self.limit
        begin = max(self.prefix, self.start)
        after = _decode(self.token) if self.token else None
        at = bisect_left(names, begin if after is None else after)
        while at < len(names) and names[at].startswith(self.prefix):
            name = names[at]
            if self.end and name >= self.end:
                break
            if not left:
                page.more = _encode(name)
                break
            left -= 1
            cut = name.find(self.delimiter, len(self.prefix)) if self.delimiter else -1
            if cut < 0:
                page.objects.append(bucket.objects[name])
                at += 1
                continue
            common = name[: cut + len(self.delimiter)]
            # Never twice: the next page starts behind all of it.
            page.prefixes.append(common)
            if self.trailing and name == common:
                page.objects.append(bucket.objects[name])
            at = bisect_left(names, common + _BEHIND)
            while at < len(names) and names[at].startswith(common):
                at += 1
        return page


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode(b"1!" + name.encode()).decode()


def _decode(token: str) -> str:
    try:
        text = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    if not text.startswith("1!"):
        raise ServiceError("invalid", "Invalid page token.")
    return text[2:]

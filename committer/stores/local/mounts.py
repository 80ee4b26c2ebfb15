"""Names the kind of mount that cannot run jobs, and the URI to use instead."""

from __future__ import annotations

import os
from typing import Final

from committer.documentation import page
from committer.errors import UnsupportedError
from committer.paths import StorePath

# By what the kernel calls the file system, or what is mounted, begins with or contains.
_INSTEAD: Final = (
    ("gcsfuse", "gs://BUCKET/PATH"),
    ("blobfuse", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    ("s3fs", "s3://BUCKET/PATH"),
    ("mountpoint-s3", "s3://BUCKET/PATH"),
    ("goofys", "s3://BUCKET/PATH"),
)
_ANY: Final = "gs://…, abfss://… or s3://…"


def lacking(directory: StorePath, what: str) -> UnsupportedError:
    """The error of a file system that cannot do what every job needs."""
    kind, source = _mounted_at(directory.path)
    instead = next((uri for name, uri in _INSTEAD if name in kind or name in source), _ANY)
    return UnsupportedError(
        f"the file system that is mounted here ({kind or 'of unknown kind'}) {what}",
        operation="probe",
        path=directory,
        next_step=f"where it shows a bucket or a container, give the URI of that in place of the path: {instead}; else "
        f"write to another file system ({page('stores/local.md')})",
    )


def _mounted_at(path: str) -> tuple[str, str]:
    """Kind and source of the file system that a path lies in; empty where the system does not say."""
    place, best = os.fsencode(os.path.realpath(path)), b""
    found = ("", "")
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields, _, described = line.partition(b" - ")
                top = fields.split(b" ", 5)[4]
                if len(top) >= len(best) and (place + b"/").startswith(top.rstrip(b"/") + b"/"):
                    kind, source = described.split(b" ", 2)[:2]
                    best, found = top, (os.fsdecode(kind), os.fsdecode(source))
    except (OSError, IndexError, ValueError):
        return "", ""
    return found

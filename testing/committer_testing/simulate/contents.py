"""Contents of a destination: the owner of a name, the job of a `_SUCCESS`, differences of contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from committer.records.job_state import SETUP
from committer_testing.simulate.worlds import ELSEWHERE, MAGIC, OUT, TEMPORARY

VISIBLE = (f"{OUT}/", f"{ELSEWHERE}/")
Files: TypeAlias = Mapping[str, bytes]


def digests(files: Files) -> dict[str, str]:
    """The content of each file, as a digest."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def difference(found: Files, expected: Files) -> str:
    """What is missing, what is too much, what is other than it must be."""
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    return f"missing {missing}, extra {extra}, other content {other}"


def is_temporary(name: str) -> bool:
    """Whether a name is below the destination's `_temporary`, or one of Hadoop's for uploads that wait."""
    return name.startswith((f"{OUT}/{TEMPORARY}/", f"{OUT}/{MAGIC}"))


def is_entry(name: str) -> bool:
    """Whether a name is that of an entry of a job that commits."""
    return name.startswith(f"{OUT}/{TEMPORARY}/.committing/")


@lru_cache(maxsize=64)
def job_of(marker: bytes | None) -> tuple[str, str]:
    """The id of the job that a `_SUCCESS` speaks of, and the name of its setup; empty where it names none."""
    try:
        found = json.loads(marker or b"{}")
        return str(found.get("jobId", "")), str(found.get("diagnostics", {}).get(SETUP, ""))
    except ValueError:
        return "", ""

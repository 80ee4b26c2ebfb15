"""Recognizes places that a command was given by mistake."""

from __future__ import annotations

from typing import Final

from committer.cli.session import Session
from committer.cli.text import command
from committer.committers.opened_store import open_store
from committer.errors import StoreError
from committer.layout import INTENT, MANIFEST_SUFFIX, PLAN, RECORDS, SUCCESS, TEMPORARY
from committer.paths import StorePath

_RECORDS: Final = frozenset({SUCCESS, *RECORDS})
_SUFFIXES: Final = (MANIFEST_SUFFIX, ".pending", ".pendingset", ".append", ".replace")
_PREFIXES: Final = (PLAN, INTENT)
_MOST_NAMED = 5
_MOST_LISTED = 1_000


def destination_above(uri: str) -> str:
    """Returns the destination, as typed, whose `_temporary` holds a place; empty if none does."""
    above, found, rest = uri.partition(f"/{TEMPORARY}")
    return above if found and above and rest[:1] in ("", "/") else ""


def told_destination(above: str) -> str:
    """Returns the next step for a user who named a place in `_temporary`."""
    return f"name the destination whose jobs work there: `{command('jobs', above)}`"


async def records_in(session: Session, path: str) -> str:
    """Returns the next step for a user who named a directory instead of a record: lists its first thousand entries."""
    place = StorePath.of(path)
    store = await open_store(place, session.storage, session.config)
    found: list[str] = []
    try:
        listed = 0
        async for child in store.list(place):
            listed += 1
            name = child.path.name
            if not child.is_directory and _is_record(name):
                found.append(name)
            if listed == _MOST_LISTED:
                break
    except StoreError:
        pass
    finally:
        await store.close()
    if not found:
        jobs = command("jobs", destination_above(path) or path)
        return f"no record lies in it; this shows the jobs of a destination: `{jobs}`"
    names = sorted(found)[:_MOST_NAMED]
    first = command("inspect", f"{path.rstrip('/')}/{names[0]}")
    return f"name a record in it, such as {', '.join(names)}: `{first}`"


def _is_record(name: str) -> bool:
    return name in _RECORDS or name.endswith(_SUFFIXES) or name.startswith(_PREFIXES)

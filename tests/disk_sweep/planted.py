"""Bugs to plant in the engine, each of which the sweep must find."""

from __future__ import annotations

from typing import Any, Final

from committer.committers import after_failure
from committer.errors import CommitterError
from committer.stores.local import places


def _decided_is_told_unchanged() -> None:
    """An error after the decision says that nothing was changed."""

    def say(_context: Any, error: CommitterError, *_more: Any, **_named: Any) -> CommitterError:
        error.outcome = "unchanged"
        return error

    after_failure.advise_recovery = say  # type: ignore[assignment]


def _links_are_followed() -> None:
    """A link in the place of a job's directory is followed."""
    places._kernel_opens = lambda: None  # type: ignore[assignment]
    places._walk = lambda base, rest, flags: places.os.open(f"{base}/{rest}", flags)  # type: ignore[attr-defined]


BUGS: Final = {"told unchanged": _decided_is_told_unchanged, "links are followed": _links_are_followed}


def plant(name: str) -> None:
    """Plants a bug in this process; none without a name."""
    if name:
        BUGS[name]()

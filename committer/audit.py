"""Audit context: which job, task attempt and stage a store call is made for.

Hadoop keeps these in thread locals and sends them along with each request (``ji``, ``ta``, ``st``); here they are
context variables, which every task started inside the block inherits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_audit: ContextVar[Mapping[str, str]] = ContextVar("committer_audit", default=_NOTHING)


@contextmanager
def audit(*, ji: str | None = None, ta: str | None = None, st: str | None = None) -> Iterator[None]:
    """Sets keys for a block, and what they were before afterwards; a key not given stays as it is.

    Args:
        ji: The job's id.
        ta: The task attempt's id.
        st: The stage, or a finer name of what is done.
    """
    before = _audit.get()
    given = {key: value for key, value in (("ji", ji), ("ta", ta), ("st", st)) if value is not None}
    _audit.set({**before, **given})
    try:
        yield
    finally:
        _audit.set(before)


def current_audit() -> dict[str, str]:
    """The keys in force here; those never set are absent."""
    return dict(_audit.get())

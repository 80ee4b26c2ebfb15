"""Loggers and audit contexts that name the job, task attempt and stage.

Hadoop sends these with each request (``ji``, ``ta``, ``st``); here they are context variables, which every task
started inside the block inherits. All loggers are below ``committer``. INFO: a job is opened, decided, published,
ended, recovered, rolled back, aborted, removed by a cleanup. DEBUG: stages and task attempts. WARNING: a store that
asks to slow down, calls that are sent again many times, and leftovers. Errors are raised, never only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias

_NOTHING: Mapping[str, str] = MappingProxyType({})
_audit: ContextVar[Mapping[str, str]] = ContextVar("committer_audit", default=_NOTHING)


@contextmanager
def audit(*, ji: str | None = None, ta: str | None = None, st: str | None = None) -> Iterator[None]:
    """Sets the ids of job and task attempt, and the stage, for a block; a key not given keeps its value."""
    before = _audit.get()
    given = {key: value for key, value in (("ji", ji), ("ta", ta), ("st", st)) if value is not None}
    _audit.set({**before, **given})
    try:
        yield
    finally:
        _audit.set(before)


def current_audit() -> dict[str, str]:
    """Returns the current audit keys; those never set are absent."""
    return dict(_audit.get())


Logger: TypeAlias = "logging.LoggerAdapter[logging.Logger]"


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    # A level that is off costs one look: `process` runs only for records that are made.
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        keys = current_audit()
        given: Mapping[str, object] = kwargs.get("extra") or {}
        kwargs["extra"] = {"job": keys.get("ji", ""), "task": keys.get("ta", ""), "stage": keys.get("st", ""), **given}
        return msg, kwargs


def job_logger(name: str) -> Logger:
    """Returns a logger whose records have ``job``, ``task`` (the attempt's id) and ``stage`` of the audit context.

    Outside of one they are empty; ``extra=`` wins over them.
    """
    return _JobLogger(logging.getLogger(name), {})

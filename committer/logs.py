"""Loggers whose every record says which job and task attempt it is about.

All are below the logger ``committer``. INFO: a job is opened, decided, published, ended, recovered, rolled back,
aborted, removed by a cleanup. DEBUG: stages and task attempts. WARNING: a store that asks to slow down, calls that are
sent again many times, and what is left behind. Errors are raised, never only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

from committer.audit import current_audit

Logger: TypeAlias = "logging.LoggerAdapter[logging.Logger]"


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    # A level that is off costs one look: `process` runs only for records that are made.
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        keys = current_audit()
        given: Mapping[str, object] = kwargs.get("extra") or {}
        kwargs["extra"] = {
            "job": keys.get("ji", ""),
            "task": keys.get("ta", ""),
            "stage": keys.get("st", ""),
            **given,
        }
        return msg, kwargs


def job_logger(name: str) -> Logger:
    """A logger whose records have the attributes ``job``, ``task`` (the task attempt's id) and ``stage``.

    They are those of the audit context in which the record is made, empty outside of one; ``extra=`` wins over them.

    Args:
        name: Where below ``committer`` it stands, as in ``committer.job``.
    """
    return _JobLogger(logging.getLogger(name), {})

"""What each field of `CommitterConfig` can hold."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator

from committer.driver_process import PARTS
from committer.errors import InvalidPathError
from committer.file_names import is_file_name
from committer.paths import StorePath

_FLAGS = (
    "validate_output",
    "unique_names",
    "hadoop_driver",
    "mark_successful_jobs",
    "cleanup_skipped",
    "cleanup_failures_ignored",
    "cleanup_parallel_delete",
    "cleanup_base_first",
    "outcome_kept",
    "task_cleanup",
)
_ABOVE_ZERO = (
    "io_concurrency",
    "commit_attempts",
    "record_save_attempts",
    "record_size_limit",
    "manifest_queue_capacity",
    "multipart_size",
    "multipart_in_flight",
)
_RATES = ("io_rate", "azure_io_rate")
_SECONDS = ("busy_timeout",)
_WEIGHTS = ("io_read_weight", "io_write_weight", "io_delete_weight")
_HEAVIEST = 1000
_TEXTS = ("summary_report_directory", "diagnostics_manifest_directory", "file_list_directory")
_LISTS: dict[str, tuple[Callable[[object], bool], str]] = {
    "absolute_roots": (lambda text: isinstance(text, str) and bool(text), "URIs, or absolute paths"),
    "driver_hidden": (lambda text: text in PARTS, ", ".join(PARTS)),
    "staging_directories": (
        lambda text: isinstance(text, str) and text.startswith("/") and "\0" not in text,
        "absolute paths of each machine",
    ),
    "superseded_directories": (
        lambda text: is_file_name(text.removeprefix("/")) if isinstance(text, str) else False,
        "names that may be of a job's files, relative or below absolute_roots, without a slash at the end",
    ),
}


def broken_rules(config: object) -> Iterator[tuple[str, object, str]]:
    """The fields that hold what they cannot, each with its value and what it must be."""
    for name, rule_of in _RULES.items():
        value: object = getattr(config, name)
        rule = rule_of(value)
        if rule:
            yield name, value, rule


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "it must be True or False"


def _flag_or_none(value: object) -> str:
    return "" if value is None or isinstance(value, bool) else "it must be True, False or None"


def _count(value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return "it must be an integer of 1 or more"
    return f"it must be an integer of at most {sys.maxsize}" if value > sys.maxsize else ""


def _rate(value: object) -> str:
    ok = value is None or _number(value) is not None
    return "" if ok else "it must be a number of calls per second, 0 for no limit, or None"


def _seconds(value: object) -> str:
    ok = value is None or _number(value) is not None
    return "" if ok else "it must be a number of seconds, 0 or more, or None"


def _weight(value: object) -> str:
    number = _number(value)
    ok = number is not None and number <= _HEAVIEST
    return "" if ok else f"it must be a number from 0 to {_HEAVIEST:,}"


def _text(value: object) -> str:
    return "" if isinstance(value, str) else "it must be text: a path or URI, or empty"


def _place(value: object) -> str:
    if not isinstance(value, str):
        return "it must be text: a URI, or empty"
    try:
        path = StorePath.of(value) if value else None
    except InvalidPathError as error:
        return error.message
    return "" if path is None or path.path.strip("/") else "it must be a directory, not the root of a store"


def _user(value: object) -> str:
    ok = isinstance(value, str) and (not value or (is_file_name(value) and "/" not in value))
    return "" if ok else "it must be the name of a user, or empty"


def _list_of(is_one: Callable[[object], bool], what: str) -> Callable[[object], str]:
    def rule(texts: object) -> str:
        ok = isinstance(texts, tuple) and all(map(is_one, texts))
        return "" if ok else f"it must be a tuple of texts: {what}"

    return rule


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return value


_RULES: dict[str, Callable[[object], str]] = {
    **dict.fromkeys(_FLAGS, _flag),
    "promote_directories": _flag_or_none,
    **dict.fromkeys(_ABOVE_ZERO, _count),
    **dict.fromkeys(_RATES, _rate),
    **dict.fromkeys(_SECONDS, _seconds),
    **dict.fromkeys(_WEIGHTS, _weight),
    **dict.fromkeys(_TEXTS, _text),
    "pending_set_directory": _place,
    "pending_set_user": _user,
    **{name: _list_of(is_one, what) for name, (is_one, what) in _LISTS.items()},
}

"""Adds the caller's storage options to the calls that errors advise."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from committer.advice import say_what_next
from committer.errors import CommitterError, InvalidPathError, UnsupportedError
from committer.options.references import Found, is_reference
from committer.options.storage import OptionTable
from committer.paths import Destination, StorePath
from committer.stores.registry import options_of

P = ParamSpec("P")
T = TypeVar("T")

HIDDEN: Final = "; ... stands for what was given there and is not shown"
"""Suffix of an advice in which an option's value is hidden."""

_HIDDEN_VALUE: Final = "..."
_OPTIONS: Final = "storage_options"
_CALL: Final = re.compile(r"`((?:job = )?await committer\.(?:recover|settle|cleanup|list_jobs|attach_job)\([^`]*)\)`")


def shown_options(path: StorePath, storage_options: Mapping[str, object] | None) -> str:
    """Renders storage options as Python source, with ``...`` in place of secrets; empty without options."""
    if not isinstance(storage_options, Mapping):
        return ""
    given = {key: value for key, value in storage_options.items() if value is not None}
    if not given:
        return ""
    try:
        table = options_of(path.scheme)
    except UnsupportedError:
        table = None
    shown = (f"{key!r}: {_shown(table, key, value)}" for key, value in given.items())
    return f"{{{', '.join(shown)}}}"


def _shown(table: OptionTable | None, key: str, value: object) -> str:
    if isinstance(value, Found):
        value = value.reference
    if not is_reference(value):
        if table is None or not isinstance(value, str | bool | int | float):
            return _HIDDEN_VALUE
        try:
            option = table.find(key)
        except CommitterError:
            return _HIDDEN_VALUE
        # A URL may hold a password or a signature.
        if option is None or option.secret or option.instance or not {"@", "?"}.isdisjoint(str(value)):
            return _HIDDEN_VALUE
    text = repr(value)
    # A backtick would end the call in the advice.
    return _HIDDEN_VALUE if "`" in text else text


def with_options(advice: str, shown: str) -> str:
    """Adds rendered storage options to the calls in an advice."""
    if not shown:
        return advice
    changed = _CALL.sub(
        lambda found: found[0] if _OPTIONS in found[1] else f"`{found[1]}, {_OPTIONS}={shown})`", advice
    )
    hides = changed != advice and f": {_HIDDEN_VALUE}" in shown
    return f"{changed}{HIDDEN}" if hides else changed


@contextmanager
def advising(shown: Callable[[], str]) -> Iterator[None]:
    """Adds storage options to the calls that errors of the block advise; `shown` renders them, only after a failure."""
    try:
        yield
    except CommitterError as error:
        say_what_next(error)
        error.next_step = with_options(error.next_step, shown())
        raise


def advised(operation: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorates a public coroutine function that takes ``dest`` first and ``storage_options``: see `advising`."""

    @wraps(operation)
    async def told(*args: P.args, **keywords: P.kwargs) -> T:
        def shown() -> str:
            dest = cast("Destination", args[0] if args else keywords.get("dest"))
            try:
                path = StorePath.of(dest)
            except InvalidPathError:
                return ""
            return shown_options(path, cast("Mapping[str, object] | None", keywords.get(_OPTIONS)))

        with advising(shown):
            return await operation(*args, **keywords)

    return told

"""Checks the arguments of this binding's calls before anything happens."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from committer.errors import ConfigurationError
from committer.spark.options import STORAGE
from committer.spark.session_settings import as_option
from committer.spark.sessions import is_connect, is_stopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMN: Final = re.compile(r"Column<'(\w+)'>")


def check_frame(df: DataFrame, operation: str) -> None:
    """Checks that `df` is a Spark DataFrame with a running session. No Spark job, no store call."""
    from pyspark.sql import DataFrame

    given: object = df
    # PySpark 3.5's DataFrame of Connect is no subclass of it.
    if not isinstance(given, DataFrame) and not is_connect(df):
        kind = type(given)
        pandas = kind.__module__.partition(".")[0] in {"pandas", "polars", "pyarrow"}
        raise ConfigurationError(
            f"df must be a DataFrame of Spark, not {kind.__module__}.{kind.__qualname__}",
            operation=operation,
            next_step="make one of it with spark.createDataFrame(df)" if pandas else "give the DataFrame first",
        )
    if is_stopped(df):
        raise ConfigurationError(
            "the Spark session of this DataFrame was stopped: nothing was done",
            operation=operation,
            next_step="start a session (SparkSession.builder.getOrCreate()) and make the DataFrame anew in it",
        )


def column_names(names: str | Iterable[str] | None, operation: str) -> tuple[str, ...]:
    """Normalizes partition columns: one name, several, or None for none."""
    if names is None:
        return ()
    if isinstance(names, str):
        return (names,)
    # A Column has __iter__ and refuses to be iterated over.
    given: list[object] = [names] if _is_column(names) or not isinstance(names, Iterable) else list(names)
    wrong = [one for one in given if not isinstance(one, str)]
    if wrong:
        texts = [_column_text(one) for one in given]
        example = [text for text in texts if text is not None] if None not in texts else ["month", "day"]
        raise ConfigurationError(
            f"partition_by takes names of columns, not a {type(wrong[0]).__name__}",
            operation=operation,
            next_step=f"give names: partition_by={example!r}",
        )
    return tuple(str(one) for one in given)


def option_texts(options: Mapping[str, object] | None, what: str, operation: str) -> dict[str, str]:
    """Converts options to texts; None means not given, as with Spark's own writers."""
    given: object = {} if options is None else options
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigurationError(
            f"{what} must be a mapping of names to values, not a {type(given).__name__}",
            operation=operation,
            next_step=f"give a dictionary: {what}={{...}}",
        )
    return {key: as_option(value) for key, value in given.items() if value is not None}


def storage_settings(storage_options: Mapping[str, object] | None, operation: str) -> dict[str, str]:
    """Returns a call's storage options as options of a write."""
    return {
        f"{STORAGE}{key}": value for key, value in option_texts(storage_options, "storage_options", operation).items()
    }


def check_write_function(write_fn: object) -> None:
    """Checks that a user's function takes rows and a task attempt, and writes before it returns."""
    problem = ""
    if not callable(write_fn):
        problem = f"must be a function, not {write_fn!r:.60}"
    elif inspect.iscoroutinefunction(write_fn) or inspect.isasyncgenfunction(write_fn):
        problem = "is an async function, which Spark's tasks do not await"
    elif inspect.isgeneratorfunction(write_fn):
        problem = "is a generator (it says yield), which nothing runs"
    elif not _takes_two(write_fn):
        problem = "must take two arguments: the rows of a partition, and the task attempt that it writes to"
    if problem:
        raise ConfigurationError(
            f"write_fn {problem}",
            operation="foreach_partition",
            next_step="give a plain function: def write(rows, task): ...",
        )


def _is_column(value: object) -> bool:
    return type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.")


def _column_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    match = _COLUMN.fullmatch(repr(value)) if _is_column(value) else None
    return match[1] if match is not None else None


def _takes_two(function: object) -> bool:
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a C function, or a class that hides its signature: the call itself will fail
        return True
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True

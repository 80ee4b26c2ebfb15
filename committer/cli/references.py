"""Parses ``-o`` (options of a commit) and ``--storage`` (storage options)."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from committer.errors import ConfigurationError
from committer.options.config import CommitterConfig
from committer.options.references import resolved
from committer.options.resolved import resolve
from committer.options.storage import check_text
from committer.options.table import OPTIONS, ConfigurationWarning
from committer.options.values import SPARK_HADOOP, is_wordy, shown_name
from committer.paths import StorePath
from committer.stores.registry import options_of

_FIELDS = tuple(field.name for field in msgspec.structs.fields(CommitterConfig))
_GIVE_ANOTHER = "give another value, or leave it out"
_KEYS = {option.key: option for option in OPTIONS}


class Choices(NamedTuple):
    """Parsed ``-o`` options: the config, fields that an option set, and notes on options without effect."""

    config: CommitterConfig
    given: tuple[str, ...]
    notes: tuple[str, ...]


def choices_of(texts: Iterable[str]) -> Choices:
    """Parses ``key=value`` texts of `CommitterConfig` fields or Hadoop's options."""
    fields: dict[str, str] = {}
    options: dict[str, str] = {}
    notes: list[str] = []
    for text in texts:
        key, value = _split(text, "-o")
        if key in fields or key in options:
            raise _bad(f"-o {key} is given twice")
        if key in _FIELDS:
            fields[key] = value
            continue
        option = _KEYS.get(key.removeprefix(SPARK_HADOOP))
        if option is None:
            raise _unknown(key)
        if not option.field:
            notes.append(f"-o {key} has no effect: {option.note}")
        options[key] = value
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConfigurationWarning)
        config = CommitterConfig.from_hadoop(options)
    notes += [str(warning.message) for warning in caught]
    by_key = resolve(options).values
    for field in fields:
        if field in by_key:
            raise _bad(f"-o {field} and an option of Hadoop's both give {field}")
    changes = {field: _converted(field, value) for field, value in fields.items()}
    if changes:
        config = config.replace(**changes)
    return Choices(config, tuple(name for name in _FIELDS if name in by_key or name in changes), tuple(notes))


def storage_options_of(uri: str, texts: Iterable[str]) -> dict[str, object]:
    """Parses ``key=value`` texts for the store of a URI; resolves references.

    A secret itself is refused: other users of the machine see a command line, and a shell's history keeps it
    (G12). So error texts name keys and never values.
    """
    values: dict[str, object] = {}
    texts = list(texts)
    table = options_of(StorePath.of(uri).scheme) if texts and uri else None
    for text in texts:
        key, value = _split(text, "--storage")
        shown = f"--storage {key if is_wordy(key) else 'KEY'}"
        if key in values:
            raise _bad(f"{shown} is given twice")
        check_text(table, key, value, shown=shown, why="others can see a command line")
        values[key] = resolved(value, key)
    return values


def _split(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # The text is not repeated: it may be a secret whose key was forgotten.
        raise _bad(f"{option} takes key=value", f"{option} KEY=VALUE")
    return key.strip(), value


def _converted(field: str, value: str) -> object:
    text = "null" if value.strip().lower() == "none" else value.strip()
    try:
        return getattr(CommitterConfig.from_text({field: text}), field)
    except msgspec.ValidationError as error:
        raise _bad(f"-o {_rule(field, text) or error}", _GIVE_ANOTHER) from error
    except ConfigurationError as error:
        raise _bad(f"-o {error.message}", _GIVE_ANOTHER) from error


def _rule(field: str, text: str) -> str:
    values: dict[str, Any] = {field: text}
    try:
        CommitterConfig(**values)
    except ConfigurationError as error:
        return error.message
    return ""


def _unknown(key: str) -> ConfigurationError:
    # Hadoop's keys are long and alike: people misspell a field, or a key's last part.
    close = difflib.get_close_matches(key, [*_FIELDS, *_KEYS], n=1, cutoff=0.7)
    return _bad(
        f"the option {shown_name(key)} of -o is not known",
        f"did you mean {close[0]}?" if close else "`committer options` lists what there is",
    )


def _bad(message: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(message, operation="command line", next_step=next_step)

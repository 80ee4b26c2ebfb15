"""Shared parts of all commands: ``-o`` and ``--storage``, output, and running the engine's coroutines."""

from __future__ import annotations

import asyncio
import difflib
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
from cyclopts import Parameter

from committer.cli.output import MOST_SHOWN, Answer, Part, Screen, and_more, line
from committer.cli.text import Exit, reach_by, usage_error
from committer.committers.opened_store import open_store
from committer.errors import ConfigurationError
from committer.events.display import Display
from committer.options.config import CommitterConfig
from committer.options.references import resolved
from committer.options.resolved import resolve
from committer.options.storage import check_text
from committer.options.table import BY_KEY, ConfigurationWarning
from committer.options.values import SPARK_HADOOP, is_wordy, shown_name
from committer.paths import StorePath
from committer.stores.paced import PacedStore
from committer.stores.registry import options_of

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Common:
    """Options of every command that reaches a store."""

    option: Annotated[
        tuple[str, ...],
        Parameter(
            name=("-o", "--option"),
            metavar="KEY=VALUE",
            help="A choice of the commit, by its name or by Hadoop's key; may be repeated. `committer options` lists "
            "them.",
        ),
    ] = ()
    storage: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="KEY=VALUE",
            help="A storage option; may be repeated. Of a secret say where it is found, env:NAME or file:PATH.",
        ),
    ] = ()
    output: Annotated[
        Literal["text", "json"], Parameter(help="What is printed to standard output; text when left out.")
    ] = "text"


_FIELDS = tuple(field.name for field in msgspec.structs.fields(CommitterConfig))
_GIVE_ANOTHER = "give another value, or leave it out"


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
            raise usage_error(f"-o {key} is given twice")
        if key in _FIELDS:
            fields[key] = value
            continue
        option = BY_KEY.get(key.removeprefix(SPARK_HADOOP))
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
            raise usage_error(f"-o {field} and an option of Hadoop's both give {field}")
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
            raise usage_error(f"{shown} is given twice")
        check_text(table, key, value, shown=shown, why="others can see a command line")
        values[key] = resolved(value, key)
    return values


def _split(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # The text is not repeated: it may be a secret whose key was forgotten.
        raise usage_error(f"{option} takes key=value", f"{option} KEY=VALUE")
    return key.strip(), value


def _converted(field: str, value: str) -> object:
    text = "null" if value.strip().lower() == "none" else value.strip()
    try:
        return getattr(CommitterConfig.from_text({field: text}), field)
    except msgspec.ValidationError as error:
        raise usage_error(f"-o {_rule(field, text) or error}", _GIVE_ANOTHER) from error
    except ConfigurationError as error:
        raise usage_error(f"-o {error.message}", _GIVE_ANOTHER) from error


def _rule(field: str, text: str) -> str:
    values: dict[str, Any] = {field: text}
    try:
        CommitterConfig(**values)
    except ConfigurationError as error:
        return error.message
    return ""


def _unknown(key: str) -> ConfigurationError:
    # Hadoop's keys are long and alike: people misspell a field, or a key's last part.
    close = difflib.get_close_matches(key, [*_FIELDS, *BY_KEY], n=1, cutoff=0.7)
    return usage_error(
        f"the option {shown_name(key)} of -o is not known",
        f"did you mean {close[0]}?" if close else "`committer options` lists what there is",
    )


class Reach(TypedDict):
    """Arguments by which a call of the engine reaches the store."""

    config: CommitterConfig
    storage_options: dict[str, object]


class Session:
    """Run of a command; `uri` is the place whose storage options `common` holds."""

    def __init__(self, common: Common | None = None, uri: str = "") -> None:
        common = common or Common()
        self.screen: Screen = Screen(json=common.output == "json")
        self.choices: Choices = choices_of(common.option)
        self.storage: dict[str, object] = storage_options_of(uri, common.storage)
        reach_by(common.storage, common.option, typed=uri)
        self.display: Display = Display(self.screen.err)
        self.screen.remark(self.choices.notes)

    @property
    def config(self) -> CommitterConfig:
        """Options of the commit."""
        return self.choices.config

    @property
    def reach(self) -> Reach:
        """Arguments by which calls of the engine reach this command's store."""
        return {"config": self.config, "storage_options": self.storage}

    def store(self, place: StorePath) -> AbstractAsyncContextManager[PacedStore]:
        """Opens the store of a place for a block."""
        return open_store(place, self.storage, self.config)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and shows its progress."""
        with self.display:
            return asyncio.run(work)

    def run_long(self, work: Coroutine[Any, Any, T], interrupted: Callable[[], T]) -> T:
        """Runs a coroutine that changes something; calls `interrupted` after Ctrl-C, once the work has stopped."""
        try:
            return self.run(work)
        except KeyboardInterrupt:
            return interrupted()

    def confirmed(self, plan: Answer, *, yes: bool) -> bool:
        """Shows a plan and returns whether to run it: with `yes`, or if a person at a terminal agrees."""
        if not (yes or self.screen.can_ask):
            return False
        if not self.screen.json:
            self.screen.aside(plan.parts)
        if yes:
            return True
        print("Go ahead? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def unconfirmed(self, plan: Answer) -> Answer:
        """Returns the answer for a plan that was not confirmed."""
        if self.screen.can_ask:
            return Answer(plan.data, [line("nothing was done")], Exit.USAGE)
        return replace(plan, code=Exit.USAGE, notes=[*plan.notes, "nothing was done: repeat the command with --yes"])


def named(
    head: str,
    names: Sequence[str],
    style: str = "",
    limit: int = MOST_SHOWN,
    *,
    count: int = 0,
    most: int | None = None,
) -> list[Part]:
    """Lists texts under a head, shortened to `limit`; nothing if there are none.

    Args:
        count: The total, if not all are given.
        most: The maximum number that can be given; as many mean that there may be more.
    """
    if not names:
        return []
    left = max(count, len(names)) - len(names[:limit])
    more = [and_more(left, at_least=len(names) == most)] if left else []
    return [line(f"{head}:", style, indent=2), *(line(name, indent=4) for name in (*names[:limit], *more))]

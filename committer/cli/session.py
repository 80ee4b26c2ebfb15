"""Shared parts of all commands: options, output, and running the engine's coroutines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from cyclopts import Parameter

from committer.cli.output import MOST_SHOWN, Answer, Part, Screen, and_more, line
from committer.cli.references import Choices, choices_of, storage_options_of
from committer.cli.text import Exit, reach_by
from committer.committers.opened_store import open_store
from committer.events.display import Display
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.stores.paced import PacedStore

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

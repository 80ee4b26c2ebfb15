"""Answers: what a command found out or did, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Final, TypeAlias

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from committer.cli.text import Exit, commands_of, pieces_of, sentence_of
from committer.errors import CommitterError
from committer.readable import clean

Part: TypeAlias = RenderableType
"""One block of text, harmless for a terminal: made by the functions of this module."""

_UNBOUNDED = 100_000
_CAUSES = 5

MOST_SHOWN: Final = 20
"""So many of what an answer tells of are shown to people, where nothing else is asked for."""

MOST_TOLD: Final = 100
"""So many conflicts, and files that would be replaced, the engine names; there may be others (`CommitPlan`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command has to say.

    Attributes:
        data: The same as values; printed with ``--output json``.
        parts: The same as text.
        code: What the process returns.
        notes: Remarks that are no part of the answer; they go to standard error.
        final: Of a plan: whether nothing would be done, so that no question is asked.
        changed: Whether the command did what it was confirmed to do.
    """

    data: dict[str, object]
    parts: Sequence[Part]
    code: Exit = Exit.OK
    notes: Sequence[str] = field(default=())
    final: bool = False
    changed: bool = False


def line(text: object, style: str = "", indent: int = 0) -> Part:
    """One sentence; long ones go on below their beginning."""
    part = Text(clean(text), style=style, overflow="fold")
    return Padding(part, (0, 0, 0, indent)) if indent else part


def copyable(text: object, indent: int = 2) -> Part:
    """A line that is never broken, so that it can be copied whole."""
    return Text(" " * indent + clean(text), no_wrap=True, overflow="ignore")


def pairs(rows: Iterable[tuple[str, object]], indent: int = 0) -> Part:
    """Names with their values; a row without value is left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            grid.add_row(Text(clean(name), style="dim"), _cell(value))
    return Padding(grid, (0, 0, 0, indent))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = (), indent: int = 0
) -> Part:
    """Rows under heads.

    Args:
        heads: One a column.
        rows: Cells; a `rich.text.Text` keeps its style.
        right: Columns of numbers.
        indent: Spaces before it.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, head in enumerate(heads):
        made.add_column(head, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right)
    for row in rows:
        made.add_row(*map(_cell, row))
    return Padding(made, (0, 0, 0, indent)) if indent else made


def _cell(value: object) -> RenderableType:
    return value if isinstance(value, Text) else Text(clean(value), overflow="fold")


def styled(text: object, style: str) -> Text:
    """A cell with a style."""
    return Text(clean(text), style=style, overflow="fold")


def and_more(left: int, *, at_least: bool = False) -> str:
    """What stands below a list of which only the first are shown."""
    return f"and {'at least ' if at_least else ''}{left:,} more"


def parts_of_error(error: BaseException) -> list[Part]:
    """An error for people: what failed, whether anything changed, what to do next."""
    if not isinstance(error, CommitterError):
        return [line(f"error: {type(error).__name__}: {error}", "bold red")]
    parts: list[Part] = [line(f"error: {error.message}", "bold red")]
    detail = [("path", error.path if error.path not in error.message else ""), ("outcome", error.outcome)]
    parts.append(pairs(detail, indent=2))
    pieces = pieces_of(error.next_step)
    if any(is_command for _, is_command in pieces):
        parts.append(line("next step", "dim", indent=2))
        if not all(is_command for _, is_command in pieces):
            parts.append(line(sentence_of(error.next_step), indent=4))
        parts += [copyable(text, indent=6) for text in dict.fromkeys(commands_of(error.next_step))]
    else:
        parts[-1] = pairs([*detail, ("next step", error.next_step)], indent=2)
    conflicts = getattr(error, "conflicts", ())
    parts += [line(f"- {conflict}", indent=2) for conflict in conflicts[:MOST_SHOWN]]
    if len(conflicts) > MOST_SHOWN:
        left = and_more(len(conflicts) - MOST_SHOWN, at_least=len(conflicts) == MOST_TOLD)
        parts.append(line(f"- {left}", indent=2))
    causes = [getattr(cause, "message", "") or f"{type(cause).__name__}: {cause}" for cause in error.causes]
    parts += [line(f"- {cause}", indent=2) for cause in causes[:_CAUSES] if cause not in error.message]
    if len(causes) > _CAUSES:
        parts.append(line(f"- and {len(causes) - _CAUSES:,} more", indent=2))
    for note in getattr(error, "__notes__", ()):
        first, *more = [text.strip() for text in note.splitlines() if text.strip()] or [""]
        parts += [line(f"note: {first}", indent=2), *(line(text, indent=4) for text in more)]
    return parts


def data_of_error(error: BaseException, code: Exit) -> dict[str, object]:
    """An error for programs."""
    known = error if isinstance(error, CommitterError) else None
    return {
        "error": {
            "type": type(error).__name__,
            "message": known.message if known else str(error),
            "operation": known.operation if known else "",
            "path": known.path if known else "",
            "outcome": known.outcome if known else "unknown",
            "next_step": known.next_step.replace("`", "") if known else "",
            "commands": commands_of(known.next_step) if known else [],
            "causes": [str(cause) for cause in known.causes] if known else [],
        },
        "exit": int(code),
    }


def builtins_of(value: object) -> object:
    """Structs and the like as dicts, lists and texts."""
    return msgspec.to_builtins(value, enc_hook=str)


class Screen:
    """Where a command's text goes: standard output for answers, standard error for all else.

    Text that does not go to a terminal is not broken into lines, unless ``COLUMNS`` says how wide it may be.

    Attributes:
        json: Whether answers are JSON.
        err: The console of standard error.
    """

    def __init__(self, *, json: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                # A path that the locale cannot spell must not end a command that commits.
                reconfigure(errors="backslashreplace")
        self.json = json
        self.err: Console = _console(sys.stderr)

    @property
    def can_ask(self) -> bool:
        """Whether a person sits there who can be asked."""
        return not self.json and sys.stdin is not None and sys.stdin.isatty() and self.err.is_terminal

    def answer(self, answer: Answer) -> None:
        """Prints an answer, then remarks about it.

        Raises:
            OSError: Standard output takes nothing, as a file on a full disk.
        """
        if self.json:
            text = json.dumps(builtins_of(answer.data), indent=2)
            # Escaped as other control characters are: a terminal may act upon it.
            _write(sys.stdout, text.replace("\x7f", "\\u007f") + "\n")
        else:
            _write(sys.stdout, _rendered(_console(sys.stdout), answer.parts))
        self.remark(answer.notes)

    def error(self, error: BaseException, code: Exit) -> None:
        """Prints an error: for people always, and for programs when they asked for JSON."""
        self.aside(parts_of_error(error))
        if self.json:
            self.answer(Answer(data_of_error(error, code), ()))

    def remark(self, notes: Iterable[str]) -> None:
        """Prints remarks to standard error."""
        self.aside([line(f"note: {note}", "yellow") for note in notes])

    def aside(self, parts: Sequence[Part]) -> None:
        """Prints to standard error. Where nothing can be written there, the command goes on all the same."""
        if parts:
            try:
                _write(sys.stderr, _rendered(self.err, parts))
            except OSError:
                _discard(sys.stderr)

    def end(self, answer: Answer) -> Exit:
        """Prints the answer of a command; the exit code says what was done, also where that could not be written."""
        try:
            self.answer(answer)
        except OSError as error:
            _discard(sys.stdout)
            unwritten = CommitterError(
                f"the answer could not be written to standard output: {error.strerror}",
                operation="command line",
                next_step="free space where standard output goes, or send it elsewhere",
            )
            self.error(unwritten, Exit.FAILED)
            return answer.code or (Exit.OK if answer.changed else Exit.FAILED)
        return answer.code


def _console(file: IO[str]) -> Console:
    width = None if file.isatty() or os.environ.get("COLUMNS", "").isdecimal() else _UNBOUNDED
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def _rendered(console: Console, parts: Sequence[Part]) -> str:
    with console.capture() as capture:
        # Not cropped: what is to be copied may be wider than the terminal.
        console.print(Group(*parts), crop=False)
    # A table fills its last column with spaces.
    return "".join(f"{text.rstrip()}\n" for text in capture.get().splitlines())


def _write(file: IO[str], text: str) -> None:
    try:
        file.write(text)
        file.flush()
    except BrokenPipeError:
        # Who read went away (`| head`). What was done stays done, and the exit code says so.
        _discard(file)


def _discard(file: IO[str]) -> None:
    """Has a stream that takes nothing any more swallow all: what waits in it would fail again when Python ends."""
    with suppress(OSError, ValueError):
        number = file.fileno()
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, number)
        os.close(devnull)

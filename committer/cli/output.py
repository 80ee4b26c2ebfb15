"""Answers of commands, as text for people and as JSON for programs."""

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

from committer.cli.text import Exit, commands_of, has_sentence, sentence_of
from committer.errors import CommitterError
from committer.readable import clean

Part: TypeAlias = RenderableType
"""A block of text that is safe for a terminal, made by the functions of this module."""

_UNBOUNDED = 100_000
_CAUSES = 5

MOST_SHOWN: Final = 20
"""Default number of shown entries of a list."""

MOST_TOLD: Final = 100
"""Maximum number of conflicts, and of files to be replaced, that the engine names (`CommitPlan`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a command, as `data` for JSON and as `parts` and `notes` (on standard error) for people.

    Attributes:
        final: Of a plan: True if there is nothing to do, so that no question is asked.
        changed: True if the command did what was confirmed.
    """

    data: dict[str, object]
    parts: Sequence[Part]
    code: Exit = Exit.OK
    notes: Sequence[str] = field(default=())
    final: bool = False
    changed: bool = False


def line(text: object, style: str = "", indent: int = 0) -> Part:
    """Makes a sentence, which may wrap."""
    part = Text(clean(text), style=style, overflow="fold")
    return Padding(part, (0, 0, 0, indent)) if indent else part


def copyable(text: object, indent: int = 2) -> Part:
    """Makes a line that never wraps, for copying it whole."""
    return Text(" " * indent + clean(text), no_wrap=True, overflow="ignore")


def pairs(rows: Iterable[tuple[str, object]], indent: int = 0) -> Part:
    """Makes rows of names and values; leaves out rows without value."""
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
    """Makes a table; a `rich.text.Text` cell keeps its style, and `right` are columns of numbers."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column, head in enumerate(heads):
        made.add_column(head, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right)
    for row in rows:
        made.add_row(*map(_cell, row))
    return Padding(made, (0, 0, 0, indent)) if indent else made


def _cell(value: object) -> RenderableType:
    return value if isinstance(value, Text) else Text(clean(value), overflow="fold")


def styled(text: object, style: str) -> Text:
    """Makes a table cell with a style."""
    return Text(clean(text), style=style, overflow="fold")


def and_more(left: int, *, at_least: bool = False) -> str:
    """Makes the last line of a shortened list."""
    return f"and {'at least ' if at_least else ''}{left:,} more"


def parts_of_error(error: CommitterError) -> list[Part]:
    """Shows an error to people: the failure, its outcome and the next step."""
    parts: list[Part] = [line(f"error: {error.message}", "bold red")]
    detail = [("path", error.path if error.path not in error.message else ""), ("outcome", error.outcome)]
    parts.append(pairs(detail, indent=2))
    commands = commands_of(error.next_step)
    if commands:
        parts.append(line("next step", "dim", indent=2))
        if has_sentence(error.next_step):
            parts.append(line(sentence_of(error.next_step), indent=4))
        parts += [copyable(text, indent=6) for text in dict.fromkeys(commands)]
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


def data_of_error(error: CommitterError, code: Exit) -> dict[str, object]:
    """Shows an error to programs."""
    return {
        "error": {
            "type": type(error).__name__,
            "message": error.message,
            "operation": error.operation,
            "path": error.path,
            "outcome": error.outcome,
            "next_step": error.next_step.replace("`", ""),
            "commands": commands_of(error.next_step),
            "causes": [str(cause) for cause in error.causes],
        },
        "exit": int(code),
    }


def builtins_of(value: object) -> object:
    """Converts structs and the like to dicts, lists and texts."""
    return msgspec.to_builtins(value, enc_hook=str)


class Screen:
    """Output of a command: standard output for answers, standard error for all else.

    Text that does not go to a terminal wraps only if ``COLUMNS`` gives a width.
    """

    def __init__(self, *, json: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                # A path that the locale cannot encode must not stop a command that commits.
                reconfigure(errors="backslashreplace")
        self.json = json
        self.err: Console = _console(sys.stderr)

    @property
    def can_ask(self) -> bool:
        """Reports whether a person at a terminal can be asked."""
        return not self.json and sys.stdin is not None and sys.stdin.isatty() and self.err.is_terminal

    def answer(self, answer: Answer) -> None:
        """Prints an answer, then its notes; raises OSError if standard output fails, as on a full disk."""
        if self.json:
            text = json.dumps(builtins_of(answer.data), indent=2)
            # Escaped like other control characters: a terminal may act on it.
            _write(sys.stdout, text.replace("\x7f", "\\u007f") + "\n")
        else:
            _write(sys.stdout, _rendered(_console(sys.stdout), answer.parts))
        self.remark(answer.notes)

    def error(self, error: CommitterError, code: Exit) -> None:
        """Prints an error, as JSON too if that is the output."""
        self.aside(parts_of_error(error))
        if self.json:
            self.answer(Answer(data_of_error(error, code), ()))

    def remark(self, notes: Iterable[str]) -> None:
        """Prints notes to standard error."""
        self.aside([line(f"note: {note}", "yellow") for note in notes])

    def aside(self, parts: Sequence[Part]) -> None:
        """Prints to standard error; the command continues if that fails."""
        if parts:
            try:
                _write(sys.stderr, _rendered(self.err, parts))
            except OSError:
                _discard(sys.stderr)

    def end(self, answer: Answer) -> Exit:
        """Prints the answer and returns the exit code, which tells what was done even if printing failed."""
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
        # Not cropped: text to copy may be wider than the terminal.
        console.print(Group(*parts), crop=False)
    # A table pads its last column with spaces.
    return "".join(f"{text.rstrip()}\n" for text in capture.get().splitlines())


def _write(file: IO[str], text: str) -> None:
    try:
        file.write(text)
        file.flush()
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). The command's work stays done, as the exit code tells.
        _discard(file)


def _discard(file: IO[str]) -> None:
    """Redirects a failed stream to /dev/null: its buffer would fail again when Python ends."""
    with suppress(OSError, ValueError):
        number = file.fileno()
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, number)
        os.close(devnull)

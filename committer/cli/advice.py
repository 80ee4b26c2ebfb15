"""What an error advises, as commands that can be typed as they are shown."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Final, cast

from committer.cli.text import as_typed, command
from committer.committers.advising import HIDDEN

_CALL: Final = re.compile(r"`await committer\.(\w+\([^`]*\))`")
_COMMANDS: Final = {"list_jobs": "jobs"}
_FLAGS: Final = frozenset({"rollback", "force"})
_OF_THE_PLACE: Final = frozenset({"--job", "--storage", "-o"})
_BETWEEN: Final = " ,;:."


def as_commands(advice: str) -> str:
    """Advice with each call of the library that it names (`committer.advice`) turned into the command that does it."""
    return _CALL.sub(lambda found: f"`{_as_command(found[1])}`", advice.removesuffix(HIDDEN))


def _as_command(text: str) -> str:
    name = text.partition("(")[0]
    made = cast("ast.Call", ast.parse(text, mode="eval").body)
    place, *more = (ast.literal_eval(one) for one in made.args)
    words = [_COMMANDS.get(name, name), as_typed(place), *more]
    for keyword in made.keywords:
        if keyword.arg == "storage_options":
            # A command reaches the store as the one that failed did.
            continue
        value = ast.literal_eval(keyword.value)
        if keyword.arg in _FLAGS:
            words.append(f"--{keyword.arg}")
        elif keyword.arg == "job_id":
            words += ["--job", value]
        elif keyword.arg == "config":
            words += [word for key, one in value.items() for word in ("-o", f"{key}={_as_text(one)}")]
    return command(*words)


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def commands_of(advice: str) -> list[str]:
    """The commands that advice names in backticks; ``N`` and ``FILE`` in them stand for what only a person knows."""
    return [piece for piece, is_command in pieces_of(advice) if is_command]


def sentence_of(advice: str) -> str:
    """Advice with each command in it by its name and what it is told, without the job: the whole ones go below it."""
    parts = advice.split("`")
    for number, text in enumerate(parts):
        if number % 2 and text.startswith("committer "):
            parts[number] = _in_short(text)
    return "`".join(parts)


def _in_short(text: str) -> str:
    _program, name, *rest = shlex.split(text)
    flags: list[str] = []
    shown = False
    for word in rest:
        if word.startswith("-"):
            shown = word not in _OF_THE_PLACE
        elif not flags:
            # The destination, and the job.
            shown = False
        if shown:
            flags.append(word)
    return " ".join([name, *flags])


def pieces_of(advice: str) -> list[tuple[str, bool]]:
    """Sentences and commands, each with whether it is one."""
    pieces: list[tuple[str, bool]] = []
    for number, text in enumerate(advice.split("`")):
        if number % 2 and text.startswith("committer "):
            pieces.append((text, True))
            continue
        sentence = f"`{text}`" if number % 2 else text
        if pieces and not pieces[-1][1]:
            pieces[-1] = (pieces[-1][0] + sentence, False)
        else:
            pieces.append((sentence, False))
    trimmed = [(text if is_command else text.strip(_BETWEEN), is_command) for text, is_command in pieces]
    return [(text, is_command) for text, is_command in trimmed if text]

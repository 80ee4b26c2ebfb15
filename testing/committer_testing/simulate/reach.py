"""Which branches of the engine a search reached, and which it never did."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import committer

ROOMS = ("stages", "committers")


class Reach:
    """Records, while entered, every line of the engine's stages and committers that runs.

    A branch is the body of an ``if``, ``else``, ``for``, ``while`` or ``except``; it was reached when its first line
    ran.
    """

    def __init__(self) -> None:
        self._root = Path(committer.__path__[0])
        self._rooms = tuple(str(self._root / room) + "/" for room in ROOMS)
        self._lines: dict[str, set[int]] = {}
        self._watched: dict[CodeType, set[int] | None] = {}

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in self._watched:
            inside = code.co_filename.startswith(self._rooms)
            self._watched[code] = self._lines.setdefault(code.co_filename, set()) if inside else None
        lines = self._watched[code]
        if lines is None:
            return None
        lines.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line

    def missed(self) -> dict[str, list[int]]:
        """First lines of branches that never ran, by file, relative to the package."""
        found: dict[str, list[int]] = {}
        for room in ROOMS:
            for path in sorted((self._root / room).rglob("*.py")):
                ran = self._lines.get(str(path), set())
                lines = [line for line in _branches(path) if line not in ran]
                if lines:
                    found[str(path.relative_to(self._root))] = lines
        return found

    def text(self) -> str:
        """A line for each branch that never ran, and how many did."""
        lines: list[str] = []
        total = missed = 0
        for room in ROOMS:
            for path in sorted((self._root / room).rglob("*.py")):
                total += len(_branches(path))
        for name, numbers in self.missed().items():
            source = (self._root / name).read_text(encoding="utf-8").splitlines()
            missed += len(numbers)
            lines += [f"{name}:{number}: {source[number - 1].strip()}" for number in numbers]
        return "\n".join([*lines, f"{total - missed} of {total} branches reached, {missed} never"])


def _branches(path: Path) -> list[int]:
    return sorted(set(_bodies(ast.parse(path.read_text(encoding="utf-8")))))


def _bodies(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While):
            yield node.body[0].lineno
            if node.orelse and not isinstance(node.orelse[0], ast.If):
                yield node.orelse[0].lineno
        elif isinstance(node, ast.ExceptHandler):
            yield node.body[0].lineno

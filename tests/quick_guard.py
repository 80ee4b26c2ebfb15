"""What stands in for a blocking call while the guard of tests/conftest.py is on, at a fraction of blockbuster's cost.

The tests make hundreds of thousands of such calls themselves, each below some eighty frames. blockbuster compares the file
name of every frame with every place where a call may block, a quarter of the CPU time of some folders. Here what a file name
means is found out once.
"""

from __future__ import annotations

import functools
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import blockbuster.blockbuster as guard_module

# Of a file: whether it is a scanned module's, and the functions in it that may block.
_Meaning = tuple[bool, frozenset[str]]


def wrap_blocking(
    modules: Sequence[str],
    excluded_modules: Sequence[str],
    func: Callable[..., Any],
    func_name: str,
    can_block_functions: Sequence[tuple[str, Iterable[str]]],
    can_block_predicate: Callable[..., bool],
) -> Callable[..., Any]:
    """Takes the place of the function of blockbuster, and has its arguments: the same calls pass, the same fail."""
    skip = guard_module._skip

    @functools.cache
    def meaning_of(file_name: str) -> _Meaning:
        scanned = file_name.startswith(tuple(modules)) and not file_name.startswith(tuple(excluded_modules))
        plain = file_name.replace("\\", "/")
        return scanned, frozenset(name for end, names in can_block_functions if plain.endswith(end) for name in names)

    def may_block() -> bool:
        frame = sys._getframe(2)
        found = not modules
        while frame is not None:
            scanned, allowed = meaning_of(frame.f_code.co_filename)
            if allowed and frame.f_code.co_name in allowed:
                return True
            found = found or scanned
            frame = frame.f_back  # type: ignore[assignment]
        return not found

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if skip.value or _get_running_loop() is None:
            return func(*args, **kwargs)
        # Only the outermost call counts, and none that this makes itself.
        skip.value = True
        try:
            if not can_block_predicate(*args, **kwargs) and not may_block():
                raise guard_module.BlockingError(func_name)
            return func(*args, **kwargs)
        finally:
            skip.value = False

    return guarded

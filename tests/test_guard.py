"""The guard of tests/conftest.py: the library cannot block the event loop unseen, tests themselves may."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from blockbuster import BlockingError

import committer


def library_function(body: str, *, name: str = "call", file: str = "made_up.py") -> Callable[[str], object]:
    """A function that looks as if it stood in a file of the library."""
    names: dict[str, Callable[[str], object]] = {}
    source = f"def {name}(path):\n    import os, time\n    {body}\n"
    exec(compile(source, os.path.join(committer.__path__[0], file), "exec"), names)
    return names[name]


BLOCKING = [
    "time.sleep(0)",
    "open(path).close()",
    "os.stat(path)",
    "os.lstat(path)",
    "os.listdir('/')",
    "os.scandir('/').close()",
    "os.close(os.open(path, os.O_RDONLY))",
]


@pytest.mark.parametrize("body", BLOCKING)
async def test_the_library_may_not_block_the_loop(body: str, tmp_path: Path, blocking_calls: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(BlockingError):
        library_function(body)(str(tmp_path / "file"))
    assert len(blocking_calls) == 1
    blocking_calls.clear()


async def test_a_swallowed_error_stays_known(blocking_calls: list[str]) -> None:
    with suppress(Exception):
        library_function("time.sleep(0)")("")
    assert blocking_calls == ["time.sleep"]
    blocking_calls.clear()


async def test_a_thread_may_block(tmp_path: Path, blocking_calls: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    look = library_function("open(path).close(); return os.stat(path).st_size")
    assert await asyncio.to_thread(look, str(tmp_path / "file")) == 1
    assert blocking_calls == []


async def test_a_test_may_look_at_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


async def test_what_the_library_calls_back_may_not_block_either(blocking_calls: list[str]) -> None:
    with pytest.raises(BlockingError):
        library_function("path()")(lambda: time.sleep(0))  # type: ignore[arg-type]
    blocking_calls.clear()


async def test_a_listed_function_may_block_and_no_other_of_its_file(tmp_path: Path, blocking_calls: list[str]) -> None:
    library_function("os.stat(path)", name="work_path", file=os.path.join("api", "task.py"))(str(tmp_path))
    with pytest.raises(BlockingError):
        library_function("os.stat(path)", name="commit", file=os.path.join("api", "task.py"))(str(tmp_path))
    blocking_calls.clear()


async def test_what_is_there_for_tests_may_block(blocking_calls: list[str]) -> None:
    library_function("time.sleep(0)", file=os.path.join("testing", "made_up.py"))("")
    assert blocking_calls == []


async def test_the_loop_may_not_wait_for_a_lock(blocking_calls: list[str]) -> None:
    lock = threading.Lock()
    library_function("path.acquire(False)")(lock)  # type: ignore[arg-type]
    with pytest.raises(BlockingError):
        library_function("path.acquire()")(lock)  # type: ignore[arg-type]
    blocking_calls.clear()


@pytest.mark.allow_blocking("it is what this test is about")
async def test_the_marker_switches_the_guard_off(tmp_path: Path) -> None:
    assert library_function("return os.stat(path)")(str(tmp_path))

"""What every test runs under: the guard against blocking calls, Hypothesis profiles, the choice of event loops."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    # A run starts hundreds of Python processes, each of which would compile all that it imports anew, half of the CPU time
    # of a command. The compiled code is kept outside the source tree, that of the imports below, too.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / "build" / "pycache"))
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

import asyncio
import builtins
import gc
import io
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import ClassVar

import blockbuster.blockbuster as guard_module
import pytest
from blockbuster import BlockBuster, BlockBusterFunction, BlockingError
from hypothesis import HealthCheck, settings

import committer
from committer.flow.runtime import use_runtime
from committer.stores.memory import MemoryStore
from committer.stores.memory.store import _spaces
from tests import groups, hangs
from tests.quick_guard import wrap_blocking
from tests.short_waits import ShortWaits
from tests.sweeps import Share

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# A slow machine must not fail a property; and in CI the same examples run every time.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


# --- Event loops --------------------------------------------------------------------------------------------------
#
# Every async test runs on asyncio's own loop. What has to do with a loop's tasks, timers, threads or sockets is marked
# `every_loop`: it runs once more on uvloop and, on Python 3.12 and later, behind the `slow` marker, with eager tasks.
# What stands in memory, or goes by virtual time, meets nothing there that it does not meet on asyncio's loop. One test
# narrows the choice of its file with @pytest.mark.asyncio(loop_factories=["asyncio"]).


def _eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # The attribute is there from 3.12 on, and this code is checked as 3.11.
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
    return loop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops that a test runs on."""
    factories: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.get_closest_marker("every_loop") is None:
        return factories
    if sys.platform != "win32":
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    if sys.version_info >= (3, 12):
        factories["eager"] = _eager_loop
    return factories


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests with eager tasks `slow`, and those that need servers `dear`, before `-m` selects."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and _eager_loop in call.params.values():
            item.add_marker(pytest.mark.slow)
    groups.keep_together(items)
    groups.mark_dear(items)


def pytest_collection() -> None:
    """Keeps the garbage collector from going through what is collected again and again while it grows."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spares the garbage collector thousands of collected tests, which stay, each time it runs."""
    gc.collect()
    gc.freeze()
    # A tenth of a run's time otherwise: a store call makes dozens of objects, of which most go with their last reference.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_keep_groups_together(items: list[pytest.Item]) -> None:
    """Makes xdist see what `xdist_group` marks, the longest groups first.

    A worker of xdist tells a test's group by a suffix of the test's id, and pytest 9.2 keeps ids elsewhere than xdist
    3.8 writes them: without this, groups are taken apart without a word (pytest-xdist, issue 1386).
    """
    groups.longest_first(items)
    for item in items:
        suffixed = getattr(item, "_nodeid", "")
        if suffixed.startswith(f"{item.nodeid}@"):
            item._id = type(item._id).parse(suffixed)  # type: ignore[attr-defined]


# --- Waits --------------------------------------------------------------------------------------------------------

# Folders whose tests lose and refuse store calls, and measure no time.
_WITHOUT_WAITS = {"api", "committers", "guarantees", "neighbours", "publishing", "stages"}


@pytest.fixture(autouse=True)
def short_waits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has calls that are lost or refused made again at once, where a test is about what comes of it."""
    if request.path.parent.name in _WITHOUT_WAITS:
        with use_runtime(ShortWaits()):
            yield
    else:
        yield


# --- Memory spaces ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def memory_spaces() -> Iterator[None]:
    """Forgets the memory spaces that a test made: they live as long as the process, and sweeps make thousands.

    The garbage collector would go through all of them each time it looks at everything.
    """
    before = set(_spaces)
    yield
    for name in _spaces.keys() - before:
        MemoryStore.forget(name)


# --- Sweeps -------------------------------------------------------------------------------------------------------


# A prime number: a sweep whose places alternate in some way meets all ways.
_ONE_IN = 13


def pytest_configure(config: pytest.Config) -> None:
    """Keeps whether tests were named, and watches for tests that hang."""
    groups.note_what_is_named(config)
    hangs.watch(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every sweep takes a sample of its places, and behind `slow` all of them."""
    if "share" in metafunc.fixturenames:
        shares = [pytest.param(_ONE_IN, id="share"), pytest.param(1, id="whole", marks=pytest.mark.slow)]
        metafunc.parametrize("share", shares, indirect=True)


@pytest.fixture
def share(request: pytest.FixtureRequest) -> Share:
    """What this test takes of its sweep."""
    return Share(request.param, request.node.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the command that runs each failed test again."""
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    for test in dict.fromkeys(groups.name_of(report.nodeid) for report in failed):
        terminalreporter.write_line(f"again: uv run pytest -m '' {shlex.quote(test)}")


# --- Blocking calls -----------------------------------------------------------------------------------------------

# What blockbuster leaves out and this library could call by mistake.
_MORE_BLOCKING_CALLS = [
    (os, "fsync"),
    (os, "lstat"),
    (os, "open"),
    (os, "scandir"),
    (os, "truncate"),
    (os, "utime"),
    (builtins, "open"),
    (io, "open"),
]


class _Recorded(BlockingError):
    """A blocking call; it stays known when the code under test swallows the error."""

    seen: ClassVar[list[str]] = []

    def __init__(self, func: str) -> None:
        super().__init__(func)
        self.seen.append(func)


@pytest.fixture(scope="session")
def _guard() -> Iterator[BlockBuster]:
    """The guard, which a test switches on, and which stays on for the next one: each switch is sixty replacements.

    What may block is said here for all tests: what a file's name means to the guard is found out once.
    """
    # Only what the library does counts: a test may look at the disk by itself, as an independent witness, and so
    # may the helpers that committer.testing gives to tests.
    testing = ModuleType("committer.testing")
    testing.__path__ = [os.path.join(committer.__path__[0], "testing")]
    guard = BlockBuster("committer", excluded_modules=[testing])
    for module, name in _MORE_BLOCKING_CALLS:
        guard.functions[f"{module.__name__}.{name}"] = BlockBusterFunction(
            module, name, scanned_modules="committer", excluded_modules=[testing]
        )
    for function in guard.functions.values():
        # Importing reads files; the library imports its heavy parts when they are first used, once a process.
        function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
        # A failing assertion inside a callback makes pytest read source lines for its report.
        function.can_block_in("_pytest/_code/source.py", {"getstatementrange_ast", "findsource"})
        function.can_block_in("linecache.py", {"updatecache", "checkcache"})
        # Documented: a path for any program needs its directories at once, a system call or two.
        function.can_block_in("committer/api/task.py", {"work_path"})
        # What a pool of processes held is given back where the garbage collector happens to run.
        function.can_block_in("multiprocessing/util.py", {"__call__"})
        # pytest's own handler writes each log record to a file.
        function.can_block_in("logging/__init__.py", {"emit"})
        # Tests look at the disk in the middle of a store call.
        function.can_block_in("tests/places.py", {"all_files", "directories", "write", "remove"})
        # A virtual loop has no threads: what the engine would do in one, it does at once.
        function.can_block_in("committer_testing/virtual_loop.py", {"run_blocking"})
    with pytest.MonkeyPatch.context() as replaced:
        replaced.setattr(guard_module, "BlockingError", _Recorded)
        replaced.setattr(guard_module, "_wrap_blocking", wrap_blocking)
        yield guard
        guard.deactivate()


@pytest.fixture(autouse=True)
def blocking_calls(request: pytest.FixtureRequest, _guard: BlockBuster) -> Iterator[list[str]]:
    """Fails a test in which the library makes a blocking call on the event loop, even if the error is swallowed.

    Yields the names of the blocking calls seen so far; a test that provokes one clears the list.
    """
    if request.node.get_closest_marker("allow_blocking"):
        _guard.deactivate()
        yield []
        return
    _Recorded.seen.clear()
    _guard.activate()
    yield _Recorded.seen
    assert not _Recorded.seen, f"blocking calls on the event loop: {sorted(set(_Recorded.seen))}"

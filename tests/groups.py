"""Marks of tests that the default run leaves out, and xdist groups of tests that run in one worker.

Tests that need a server, Java, Spark or other processes are `dear`: the default run takes none of them, `.ci/run` those of
tests/smoke.py, scripts/nightly.sh all. A run that names files, or words of tests (`-k`), takes all that it names but `slow`
ones. Tests that share a server or a Java run in one worker, where it is started once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

import pytest

from tests.smoke import SMOKE

# A file with so many tests, each a matter of milliseconds, goes to one worker whole. xdist looks at all that a worker has
# had whenever one ends: ten thousand tests that go one by one take half a minute of a processor.
SMALL_TESTS: Final = 40
# A test belongs to the first of these fixtures that it needs.
_SERVERS: Final = {
    "spark": "spark",
    "moto_server": "moto",
    "seaweedfs_server": "seaweedfs",
    "azurite_server": "azurite",
    "jvm": "java",
    "google_jvm": "java",
}
# Groups that take a minute or more, the longest first. In most of them the worker waits half of the time for its server.
_LONGEST: Final = (
    "java-hdfs",
    "spark",
    "seaweedfs",
    "processes",
    "cluster",
    "connect",
    "azurite",
    "protocol stores",
    "moto",
    "java-interop",
)
# Each test there starts Python processes, and stops or kills them.
_OF_PROCESSES: Final = "processes"
# Each test there runs a benchmark, most of them as a script with servers of its own, at a tiny size.
_OF_BENCHMARKS: Final = "benchmarks"
_VARIABLE: Final = "COMMITTER_TESTS_NAMED"


def note_what_is_named(config: pytest.Config) -> None:
    """Records in the environment whether the command names tests: xdist's workers get other arguments."""
    if not hasattr(config, "workerinput"):
        named = config.args_source is not config.ArgsSource.TESTPATHS or config.option.keyword
        os.environ[_VARIABLE] = "1" if named else ""


def keep_together(items: Sequence[pytest.Item]) -> None:
    """Adds xdist groups: one for each server, one for each file of many small tests; a test's own group stays."""
    for item in items:
        server = _server_of(item)
        if server and item.get_closest_marker("xdist_group") is None:
            # Java is started with the jars of a folder's tests.
            folder = f"-{item.path.parent.name}" if server == "java" else ""
            item.add_marker(pytest.mark.xdist_group(f"{server}{folder}"))
    _keep_files_together([item for item in items if item.get_closest_marker("xdist_group") is None])


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts the tests so that xdist starts long groups first and no worker is left with one at the end.

    Servers and Spark's sessions first, then tests that start processes of their own, then files of many tests; single
    tests, of which a worker takes one at a time, come last.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_rank)


def mark_dear(items: Sequence[pytest.Item]) -> None:
    """Adds the marks `dear` and `smoke`; none if the command names tests, as all of these run.

    Raises:
        pytest.UsageError: A smoke test of a collected file does not exist.
    """
    if os.environ.get(_VARIABLE):
        return
    files = {item.nodeid.partition("::")[0] for item in items}
    missing = {name for name in SMOKE if name.partition("::")[0] in files}
    for item in items:
        if _is_dear(item):
            item.add_marker(pytest.mark.dear)
        for name in {item.nodeid, item.nodeid.partition("[")[0]} & SMOKE.keys():
            item.add_marker(pytest.mark.smoke)
            missing.discard(name)
    if missing:
        raise pytest.UsageError(f"tests/smoke.py names tests that do not exist: {sorted(missing)}")


def _keep_files_together(items: Sequence[pytest.Item]) -> None:
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("slow"):
            by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    for name, those in by_file.items():
        # A file of a few tests may be one of long sweeps: two workers share it.
        if len(those) >= SMALL_TESTS:
            for item in those:
                item.add_marker(pytest.mark.xdist_group(re.sub(r"[^\w-]", "-", name)))


def _server_of(item: pytest.Item) -> str:
    call = getattr(item, "callspec", None)
    # A test may take its server by the name that a parameter gives, as "moto" or "moto_server".
    chosen = [value for value in call.params.values() if isinstance(value, str)] if call else []
    fixtures = {*getattr(item, "fixturenames", ()), *chosen, *(f"{value}_server" for value in chosen)}
    return next((group for name, group in _SERVERS.items() if name in fixtures), "")


def _rank(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    group = str(mark.args[0]) if mark else ""
    if group in _LONGEST:
        return _LONGEST.index(group)
    if _is_dear(item):
        return len(_LONGEST)
    return len(_LONGEST) + (1 if mark else 2)


def _is_dear(item: pytest.Item) -> bool:
    group = item.get_closest_marker("xdist_group")
    if item.path.parent.name in (_OF_PROCESSES, _OF_BENCHMARKS):
        return True
    if group is not None and group.args[0] == _OF_PROCESSES:
        return True
    return bool(_server_of(item) or item.get_closest_marker("spark") or item.get_closest_marker("java"))


def name_of(nodeid: str) -> str:
    """Returns a test's name for pytest, without the group that xdist appends."""
    return re.sub(r"@[\w-]+$", "", nodeid)

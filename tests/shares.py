"""What the default run leaves to CI, and which tests one worker keeps together.

Tests that need a server, Java or other processes to kill are dear: the default run takes one in twenty-four of them, others at
each commit (tests/rotation.py). The rest is marked `full`, which `.ci/run` runs right after it; but tests that need Spark
take too long even there, so that they take turns: both runs of a commit together take one in four, and `-m slow` the rest. A
run that names files, or words of tests (`-k`), takes all that it names. A test or class that is marked `one_in` crosses many
parameters, or repeats what other tests run elsewhere: a run takes a share of those, and `-m slow` the rest. What shares a
server or a Java runs in one worker of xdist, where it is started once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

import pytest

from tests.rotation import first_of, rotated

ONE_IN: Final = 24
# Of what needs Spark both runs of a commit take one in so many.
SPARK_ONE_IN: Final = 4
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
# Each test there starts Python processes, and stops or kills them.
_OF_PROCESSES: Final = "processes"
_VARIABLE: Final = "COMMITTER_TESTS_NAMED"


def note_what_is_named(config: pytest.Config) -> None:
    """Keeps for the workers of xdist, which are started with other words, whether tests were named."""
    if not hasattr(config, "workerinput"):
        named = config.args_source is not config.ArgsSource.TESTPATHS or config.option.keyword
        os.environ[_VARIABLE] = "1" if named else ""


def keep_together(items: Sequence[pytest.Item]) -> None:
    """Makes groups of xdist, one a server, but where a test says its own."""
    for item in items:
        server = _server_of(item)
        if server and item.get_closest_marker("xdist_group") is None:
            # Java is started with the jars of a folder's tests.
            folder = f"-{item.path.parent.name}" if server == "java" else ""
            item.add_marker(pytest.mark.xdist_group(f"{server}{folder}"))
    _keep_files_together([item for item in items if item.get_closest_marker("xdist_group") is None])


def leave_to_ci(items: Sequence[pytest.Item]) -> None:
    """Marks what is dear and not in this commit's share."""
    if os.environ.get(_VARIABLE):
        return
    dear = [item for item in items if _is_dear(item)]
    # The same share whatever else is collected: of every folder its own.
    for folder in {item.path.parent for item in dear}:
        those = [item for item in dear if item.path.parent == folder]
        first = first_of(min(ONE_IN, len(those)), folder.name)
        for number, item in enumerate(those):
            turn = (number - first) % ONE_IN
            # Two shares of one test could miss each other at every commit.
            if turn % SPARK_ONE_IN and _needs_spark(item) and not _takes_turns(item):
                item.add_marker(pytest.mark.slow)
            elif turn:
                item.add_marker(pytest.mark.full)


def take_turns(items: Sequence[pytest.Item]) -> None:
    """Leaves to `slow` what is not in this commit's share of a test, or class of tests, that is marked `one_in`."""
    if os.environ.get(_VARIABLE):
        return
    tests: dict[str, list[pytest.Item]] = {}
    shares: dict[str, int] = {}
    for item in items:
        marks = list(item.iter_markers_with_node("one_in"))
        if marks:
            classes = [node.nodeid for node, _mark in marks if isinstance(node, pytest.Class)]
            name = classes[0] if classes else item.nodeid.partition("[")[0]
            tests.setdefault(name, []).append(item)
            # A parameter and a file may both be marked.
            shares[name] = max(shares.get(name, 1), *(mark.args[0] for _node, mark in marks))
    for name, those in tests.items():
        taken = {id(item) for item in rotated(those, shares[name], name)}
        for item in those:
            if id(item) not in taken:
                item.add_marker(pytest.mark.slow)


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
    fixtures = getattr(item, "fixturenames", ())
    return next((group for name, group in _SERVERS.items() if name in fixtures), "")


def _takes_turns(item: pytest.Item) -> bool:
    return item.get_closest_marker("one_in") is not None


def _needs_spark(item: pytest.Item) -> bool:
    return _server_of(item) == "spark" or item.get_closest_marker("spark") is not None


def _is_dear(item: pytest.Item) -> bool:
    if item.get_closest_marker("slow"):
        return False
    if item.path.parent.name == _OF_PROCESSES:
        return True
    return bool(_server_of(item) or item.get_closest_marker("spark") or item.get_closest_marker("java"))

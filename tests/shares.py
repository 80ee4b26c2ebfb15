"""What the default run leaves to CI, and which tests one worker keeps together.

Tests that need a server, Java or other processes are dear: the default run takes one in forty-eight of them, others at
each commit (tests/rotation.py). `.ci/run` runs more of them right after it, which are marked `full`: both runs of a commit
together take one in four, of tests that need Spark, which take longest, one in sixteen, and `-m slow` the rest. One that
starts a Spark of its own, which takes a quarter of a minute or more, runs in one commit of forty-eight, in the second run. A
run that names files, or words of tests (`-k`), takes all that it names. A test or class that is marked `one_in` crosses many
parameters, or repeats what other tests run elsewhere: a run takes a share of those, and `-m slow` the rest. Of a test of
several cases in the folders that cross situations, faults and stores a run takes half, of eight cases or more a quarter. What
shares a server or a Java runs in one worker of xdist, where it is started once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

import pytest

from tests.rotation import first_of, rotated

ONE_IN: Final = 48
# Of what is dear both runs of a commit take one in so many: neighbours in a file take turns, mostly cases of one test.
DEAR_ONE_IN: Final = 4
SPARK_ONE_IN: Final = 16
# What one situation, kind of fault, store, event loop or command after the other meets: the cases of a test there take turns,
# half of them at each commit, or a quarter where there are so many.
CROSSING: Final = frozenset({"cli", "engine", "flow", "guarantees", "neighbours", "publishing", "stages", "stores"})
MANY_CASES: Final = 8
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
# Groups that take a minute or more where they run whole, the longest first. A worker waits for most of them half of the time,
# as each waits for a server.
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


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts what workers of xdist take one after the other, so that none has a long group left when the others are done.

    Servers and Spark's sessions first, then tests that start processes of their own, then files of many tests; single
    tests, of which a worker takes one at a time, come last.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_rank)


def leave_to_ci(items: Sequence[pytest.Item]) -> None:
    """Marks what is dear and not in this commit's share."""
    if os.environ.get(_VARIABLE):
        return
    dear = [item for item in items if _is_dear(item)]
    for item in dear:
        # So that `.ci/run` can ask which files hold any.
        item.add_marker(pytest.mark.dear)
    # The same share whatever else is collected: of every folder its own.
    for folder in {item.path.parent for item in dear}:
        those = [item for item in dear if item.path.parent == folder]
        first = first_of(min(ONE_IN, len(those)), folder.name)
        for number, item in enumerate(those):
            turn = (number - first) % ONE_IN
            # Two shares of one test could miss each other at every commit.
            if turn % _one_in(item) and not _takes_turns(item):
                item.add_marker(pytest.mark.slow)
            elif turn or _starts_a_spark(item):
                item.add_marker(pytest.mark.full)


def take_turns(items: Sequence[pytest.Item]) -> None:
    """Leaves to `slow` what is not in this commit's share of a test, or class of tests, that is marked `one_in`.

    And half, or three quarters, of what crosses several cases without that mark.
    """
    if os.environ.get(_VARIABLE):
        return
    tests: dict[str, list[pytest.Item]] = {}
    shares: dict[str, int] = {}
    crosses: dict[str, list[pytest.Item]] = {}
    for item in items:
        marks = list(item.iter_markers_with_node("one_in"))
        # What is slow anyhow has no turn: a share could hold nothing else.
        if marks and item.get_closest_marker("slow") is None:
            classes = [node.nodeid for node, _mark in marks if isinstance(node, pytest.Class)]
            name = classes[0] if classes else item.nodeid.partition("[")[0]
            tests.setdefault(name, []).append(item)
            # A parameter and a file may both be marked.
            shares[name] = max(shares.get(name, 1), *(mark.args[0] for _node, mark in marks))
        elif (
            not marks
            and item.path.parent.name in CROSSING
            and not item.get_closest_marker("slow")
            and not _is_dear(item)
        ):
            crosses.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, those in crosses.items():
        # One whose other cases take turns of their own, as on memory spaces beside a disk, has a turn, too.
        if len(those) == 1 and name in tests and first_of(2, name):
            those[0].add_marker(pytest.mark.slow)
        if len(those) > 1:
            # Of one function some cases may be marked, and have turns of their own.
            tests[f"{name} crosses"] = those
            shares[f"{name} crosses"] = 4 if len(those) >= MANY_CASES else 2
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


def _rank(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    group = str(mark.args[0]) if mark else ""
    if group in _LONGEST:
        return _LONGEST.index(group)
    if _is_dear(item):
        return len(_LONGEST)
    return len(_LONGEST) + (1 if mark else 2)


def _one_in(item: pytest.Item) -> int:
    """The share of the tests like this one that both runs of a commit take."""
    if _starts_a_spark(item):
        return ONE_IN
    return SPARK_ONE_IN if _needs_spark(item) else DEAR_ONE_IN


def _takes_turns(item: pytest.Item) -> bool:
    return item.get_closest_marker("one_in") is not None


def _needs_spark(item: pytest.Item) -> bool:
    return _server_of(item) == "spark" or item.get_closest_marker("spark") is not None


def _starts_a_spark(item: pytest.Item) -> bool:
    return _needs_spark(item) and "spark" not in getattr(item, "fixturenames", ())


def _is_dear(item: pytest.Item) -> bool:
    if item.get_closest_marker("slow"):
        return False
    group = item.get_closest_marker("xdist_group")
    if item.path.parent.name in (_OF_PROCESSES, _OF_BENCHMARKS) or item.get_closest_marker("dear"):
        return True
    if group is not None and group.args[0] == _OF_PROCESSES:
        return True
    return bool(_server_of(item) or item.get_closest_marker("spark") or item.get_closest_marker("java"))

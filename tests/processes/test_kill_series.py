"""A process dies at a drawn store call, on every store and of every committer; scripts/nightly.sh kills hundreds."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from tests.interop.jvm import NoJavaError

kill_series = pytest.importorskip("tests.processes.kill_series", reason="it takes the clients of every store")

pytestmark = pytest.mark.xdist_group("processes")


async def killed(store: str, committer: str, directory: Path) -> list[str]:
    """Kills one process of each kind; returns the faults at the end of any run."""
    problems = []
    async with kill_series.place_of(store, directory) as place:
        seeds = count(1_000)
        for kind in kill_series.KINDS:
            died = False
            while not died:
                seed = next(seeds)
                died, problem = await kill_series.tried(place, seed, kind, committer)
                problems += [f"seed {seed}, {kind}: {problem}"] if problem else []
    return problems


@pytest.mark.parametrize(
    ("store", "committer"),
    [
        ("local", "manifest"),
        ("local", "file-v1"),
        pytest.param("hdfs", "manifest", marks=pytest.mark.java),
        ("seaweedfs", "magic"),
        ("seaweedfs", "directory"),
        ("seaweedfs", "stocator"),
        ("azurite", "block-list"),
        ("adls", "manifest"),
        ("gcs", "manifest"),
    ],
)
def test_killed_then_ended(store: str, committer: str, tmp_path: Path) -> None:
    try:
        assert not asyncio.run(killed(store, committer, tmp_path))
    except NoJavaError as error:
        pytest.skip(str(error))

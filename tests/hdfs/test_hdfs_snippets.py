"""The page of HDFS from an empty folder to a committed job, on a real NameNode; see tests/test_snippets.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.hdfs.cluster import Cluster
from tests.snippets import indented, run_in_child, snippets

PAGE = "docs/stores/hdfs.md"
PLACE = "hdfs://namenode:8020/lake/table"


async def test_the_page_from_an_empty_folder_to_a_committed_job(cluster: Cluster, tmp_path: Path) -> None:
    table = f"hdfs://{cluster.authority}/lake/table"
    [job] = [one for one in snippets(PAGE, "python") if "async with committer.open_job" in one.text]
    [commands] = [block for block in indented(PAGE) if "doctor" in block]
    assert PLACE in job.text
    assert f"committer doctor {PLACE}" in commands

    def call(*words: str) -> str:
        command = [sys.executable, "-m", "committer.cli", *words, table]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    await asyncio.to_thread(call, "doctor")
    found = [job._replace(text=job.text.replace(PLACE, table))]
    await asyncio.to_thread(run_in_child, found, tmp_path)

    def standing() -> set[str]:
        files = cluster.hdfs.listFiles(cluster.path("/lake"), True)
        names = set()
        while files.hasNext():
            names.add(files.next().getPath().toUri().getPath())
        return names

    assert await asyncio.to_thread(standing) == {"/lake/table/_SUCCESS", "/lake/table/year=2026/part-00000.csv"}
    assert "complete" in await asyncio.to_thread(call, "validate")
    assert "no jobs" in await asyncio.to_thread(call, "jobs")

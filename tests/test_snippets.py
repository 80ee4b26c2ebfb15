"""What README and docs show is run as it stands; what cannot be is listed with the reason.

Console blocks: tests/cli/test_docs.py. Pages for Spark: tests/spark/test_snippets.py. The page of S3:
tests/s3/test_snippets.py, that of Azure's blobs: tests/azure_blob/test_snippets.py. The page on writing a store holds three files: tests/stores/test_writing_a_store.py.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Lake
from tests.snippets import (
    LEFT_OUT,
    PAGES,
    SCRIPTS,
    check_printed,
    indented,
    needs_spark,
    run_as_scripts,
    run_in_child,
    runnable,
    snippets,
)

S3 = "docs/stores/s3.md"
ADLS = "docs/stores/adls.md"
AZURE_BLOB = "docs/stores/azure-blob.md"
GCS = "docs/stores/gcs.md"
RUNBOOK = "docs/recovery.md"
HERE = [
    page
    for page in PAGES
    if runnable(page) and page not in {S3, ADLS, AZURE_BLOB, GCS, RUNBOOK} and not needs_spark(page)
]


def test_pages_are_found() -> None:
    assert {"docs/getting-started.md", "docs/observing.md", "docs/writing-a-store.md"} <= set(HERE)
    assert {page for page in PAGES if needs_spark(page)} == {"README.md", "docs/retries.md", "docs/spark.md"}
    assert set(HERE) >= SCRIPTS


@pytest.mark.parametrize("page", HERE)
def test_the_snippets_of_a_page_run(page: str, tmp_path: Path) -> None:
    run = run_as_scripts if page in SCRIPTS else run_in_child
    check_printed(page, run(runnable(page), tmp_path))


def test_the_snippets_of_the_runbook_run_on_the_day_after(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data" / "flights")
    lake.decided("nightly")
    lake.decided("backfill")
    shown = run_in_child(runnable(RUNBOOK), tmp_path)
    assert re.findall(r"^(\S+) (\S+) ", shown, re.MULTILINE) == [("backfill", "committing"), ("nightly", "committing")]
    assert lake.files() == [f"year=2026/part-{number}.csv" for number in range(3)]
    assert not lake.temporary.exists()


@pytest.mark.parametrize(
    ("page", "address", "arguments"),
    [
        (ADLS, "http://127.0.0.1:10000/devstoreaccount1", ["adls", "--filesystem", "data"]),
        (GCS, "http://127.0.0.1:4443", ["gcs", "--bucket", "lake"]),
    ],
)
def test_the_snippet_for_an_emulator_runs(page: str, address: str, arguments: list[str], tmp_path: Path) -> None:
    kind, *more = arguments
    command = [sys.executable, "-m", f"committer_testing.emulators.{kind}", "--port", "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
        try:
            assert emulator.stdout is not None
            url = emulator.stdout.readline().strip()
            found = [one._replace(text=one.text.replace(address, url)) for one in runnable(page)]
            assert any(url in one.text for one in found)
            run_in_child(found, tmp_path)
        finally:
            emulator.terminate()


def test_blocks_of_commands_are_run_or_listed() -> None:
    played_by_another_test = {"docs/cli.md", "README.md"}  # tests/cli/test_docs.py
    for page in PAGES:
        for language in ("sh", "console", "bash", "shell"):
            found = [one for one in snippets(page, language) if one.reason is None]
            assert not found or page in played_by_another_test, found


def test_the_list_of_what_is_not_run_has_no_dead_entry() -> None:
    found = [one for page in PAGES for language in ("python", "sh", "console") for one in snippets(page, language)]
    for page, part in LEFT_OUT:
        assert len([one for one in found if one.page == page and part in one.text]) == 1, (page, part)


@pytest.mark.parametrize("page", PAGES)
def test_no_python_stands_outside_of_a_fence(page: str) -> None:
    """Where no test would find it."""
    for block in indented(page):
        with pytest.raises(SyntaxError):
            compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

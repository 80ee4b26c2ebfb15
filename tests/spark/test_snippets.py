"""The snippets of the pages for Spark, in one session; see tests/test_snippets.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.snippets import PAGES, check_printed, needs_spark, placed, play, runnable


@pytest.fixture
def settings_as_before(spark: SparkSession) -> Iterator[None]:
    """What a snippet sets in the session is for it alone."""
    before = dict(spark.conf.getAll)
    yield
    after = dict(spark.conf.getAll)
    for key in after.keys() - before.keys():
        spark.conf.unset(key)
    for key, value in before.items():
        if after.get(key) != value:
            spark.conf.set(key, value)


@pytest.mark.usefixtures("settings_as_before")
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)])
def test_the_snippets_of_a_page_run(
    page: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = play(placed(runnable(page), tmp_path))
    check_printed(page, capsys.readouterr().out)
    assert names["spark"] is spark
    written = (tmp_path / "data").iterdir()
    assert all(any(path.rglob("part-*")) for path in written if path.name not in ("checkpoints", "reports"))

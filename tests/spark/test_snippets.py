"""The snippets of the pages for Spark, each page's joined in one process, as a reader types them; see
tests/test_snippets.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from committer.errors import UnsupportedError
from committer.spark.examining import configure_environment
from committer.spark.protocol_jar import jar_path
from tests.snippets import PAGES, check_printed, needs_spark, run_in_child, runnable

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)])
def test_the_snippets_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false pyspark-shell"
    )
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")  # what is set below is taken back
        monkeypatch.delenv(name)
    try:
        configure_environment()
        jar_path()
    except UnsupportedError as error:
        pytest.skip(str(error))
    # PySpark itself warns of the versions of its dependencies.
    check_printed(page, run_in_child(runnable(page), tmp_path, warnings="ignore"))
    written = [path for path in (tmp_path / "data").iterdir() if not path.name.endswith(("checkpoints", "reports"))]
    assert all(any(path.rglob("part-*")) for path in written)

"""No file of the package is longer than can be read in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST = 700


@pytest.mark.parametrize("package", ["committer", "pyspark_committer", "testing"])
def test_no_file_has_more_lines_than_a_reader_keeps_in_mind(package: str) -> None:
    sizes = {path: len(path.read_bytes().splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert sizes
    too_long = {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > LONGEST}
    assert not too_long, "split each by meaning"

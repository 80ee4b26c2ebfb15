"""Old files on S3, in small: both ways replace all, and one request takes the place of two a file."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("boto3")

from benchmarks import s3_overwrite


@pytest.mark.skipif(
    shutil.which("weed", path=str(Path(sys.executable).parent)) is None, reason="SeaweedFS is not installed"
)
def test_both_ways_replace_all(tmp_path: Path) -> None:
    target = tmp_path / "kept.json"
    s3_overwrite.main(["--files", "200", "--rounds", "1", "--json", str(target)])
    kept = json.loads(target.read_text())
    [alone], [together] = (kept["ways"][way] for way in (s3_overwrite.ONE_BY_ONE, s3_overwrite.TOGETHER))
    assert alone["requests"] - together["requests"] == 2 * 200 - 1
    assert len({len(row) for row in s3_overwrite.rows(kept)}) == 1

"""The comparison of completions on S3, in small."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("boto3")

from benchmarks import s3_complete


@pytest.mark.skipif(
    shutil.which("weed", path=str(Path(sys.executable).parent)) is None, reason="SeaweedFS is not installed"
)
def test_every_case_completes() -> None:
    found = s3_complete.run(completions=30, concurrency=8, rounds=1)
    assert {"store, uvloop", "store, asyncio"} <= set(found) <= {name for name, *_ in s3_complete.CASES}
    assert all(figures["cpu_us"] > 0 for figures in found.values())

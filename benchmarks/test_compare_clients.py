"""The comparison of clients in a small size: that it runs, and commits what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("py4j", reason="it drives Java")
pytest.importorskip("azure.storage.filedatalake", reason="it looks at the account")

from tests.interop.jvm import NoJavaError

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java")]


@pytest.mark.parametrize("store", ["gcs", "adls", "s3"])
def test_all_sides_commit_a_small_job(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import compare_clients

    monkeypatch.setattr(compare_clients, "WARM_UPS", 0)
    monkeypatch.setenv("_JAVA_OPTIONS", "")
    try:
        compare_clients.main([store, "--shape", "3x2x2", "--threads", "4", "--rounds", "1", "--json", str(tmp_path)])
    except NoJavaError as error:
        pytest.skip(str(error))
    (file,) = tmp_path.iterdir()
    sides = json.loads(file.read_text())["sides"]
    java = "magic, 4 threads" if store == "s3" else "manifest, 4 threads"
    assert sides.keys() == {"committer", "committer, uvloop", java}
    counted = [one["requests"] for measured in sides.values() for one in measured]
    # SeaweedFS does not count.
    assert all(count == 0 if store == "s3" else count >= 6 for count in counted)

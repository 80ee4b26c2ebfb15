"""Workers that publish, in small."""

from __future__ import annotations

import pytest

pytest.importorskip("azure.storage.filedatalake")
pytest.importorskip("boto3")

from benchmarks import publish_elsewhere


def test_one_worker_and_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_elsewhere, "RATES", {"adls": 400.0})
    monkeypatch.setattr(publish_elsewhere, "_BURST_S", 0.1)
    found = publish_elsewhere.run(["adls"], seconds=0.1, rounds=1)
    assert found["adls"]["files"] == 20
    assert found["adls"]["ratio"] > 0
    assert len(publish_elsewhere.rows(found)) == 2

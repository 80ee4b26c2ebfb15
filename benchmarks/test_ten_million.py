"""Job commits of very many files, in small; and the server that answers at once what is asked for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("boto3")

from benchmarks import client_cpu, quick_server, ten_million


@pytest.mark.parametrize("store", ["adls", "s3"])
def test_a_job_is_committed(store: str, tmp_path: Path) -> None:
    target = tmp_path / "kept.json"
    sizes = ["--files", "40", "--task-files", "10", "--directories", "4"]
    ten_million.main([*sizes, "--stores", store, "--workers", "0,1", "--root", str(tmp_path), "--json", str(target)])
    found = json.loads(target.read_text())
    assert [(one["files"], one["workers"]) for one in found["jobs"]] == [(40, 0), (40, 1)]
    # One for each file, and those of the job itself.
    assert all(one["requests"] > 40 for one in found["jobs"])
    assert len(client_cpu.ten_million_rows(found)) == 3


def test_only_what_is_asked_for_files_is_answered_at_once() -> None:
    rename = b"PUT /data/a HTTP/1.1\r\nx-ms-rename-source: /data/_temporary/j/00/%b/a\r\n\r\n"
    assert quick_server.adls(rename % b"tasks") is not None
    assert quick_server.adls(rename % b"manifests") is None
    assert quick_server.adls(b"HEAD /data/_temporary/j/00/tasks/a HTTP/1.1\r\n\r\n") is not None
    assert quick_server.adls(b"HEAD /data/_SUCCESS HTTP/1.1\r\n\r\n") is None
    assert quick_server.s3(b"POST /bucket/a?uploadId=1 HTTP/1.1\r\n\r\n") is not None
    assert quick_server.s3(b"POST /bucket/a?uploads= HTTP/1.1\r\n\r\n") is None
    assert quick_server.s3(b"POST /bucket/_temporary/a?uploadId=1 HTTP/1.1\r\n\r\n") is None
    assert quick_server.s3(b"DELETE /bucket/a?uploadId=1 HTTP/1.1\r\n\r\n") is None

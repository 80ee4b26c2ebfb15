"""The comparison of renames on ADLS, in small."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import adls_rename


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_every_case_renames() -> None:
    pytest.importorskip("azure.storage.filedatalake")
    found = adls_rename.run(renames=40, concurrency=8, rounds=1)
    assert set(found) == {name for name, *_ in adls_rename.CASES}
    assert found["official client, asyncio"]["cpu_us"] > found["store, uvloop"]["cpu_us"] > 0

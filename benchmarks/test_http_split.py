"""The split of a request's CPU, in small."""

from __future__ import annotations

import pytest

pytest.importorskip("boto3")

from benchmarks import client_cpu, http_split


def test_every_side_sends() -> None:
    found = http_split.run(slices=2, calls=64)
    assert len(found) == 2 * len(http_split.SERVICES)
    for split in found.values():
        assert tuple(split) == http_split.SIDES
        assert split[http_split.ALONE]["ratio"] == 1
        assert all(one["cpu_us"] > 0 for one in split.values())
    assert len(client_cpu.split_rows({"splits": found})) == 1 + len(http_split.SIDES)

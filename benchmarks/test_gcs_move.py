"""The comparison of moves on Google Cloud Storage, in small."""

from __future__ import annotations

from benchmarks import gcs_move


def test_every_case_moves() -> None:
    found = gcs_move.run(moves=40, concurrency=8, rounds=1)
    assert set(found) == {title for title, *_ in gcs_move.CASES}
    assert all(figures["cpu_us"] > 0 for figures in found.values())

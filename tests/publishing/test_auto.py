"""``publish="auto"``: workers publish where that is sooner."""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.stages.publish import publish_elsewhere
from tests.neighbours.meeting import Table
from tests.publishing.pools import TablePool

FILES = {f"part-{number}": b"x" for number in range(12)}


@pytest.mark.parametrize(
    ("profile", "config", "by_workers"),
    [
        ("s3", CommitterConfig(publish="auto", io_rate=3_500), True),
        ("adls", CommitterConfig(publish="auto"), True),
        ("adls", CommitterConfig(publish="auto", io_rate=1_000), False),
        ("adls", CommitterConfig(publish="driver"), True),
        ("adls", CommitterConfig(publish="spark", io_rate=1_000), True),
    ],
)
async def test_by_the_stores_rate(
    profile: str, config: CommitterConfig, by_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that the caller gives is used, but for `auto`."""
    monkeypatch.setattr(publish_elsewhere, "_WORTH_IT", 12)
    table = Table(profile)
    party = await table.job("job", FILES, config)
    pool = TablePool(table)
    report = await party.driver.commit(publish_with=pool)
    assert report.files_committed == 12
    assert bool(pool.chunks) == by_workers
    assert table.files() == FILES


async def test_by_the_number_of_files() -> None:
    table = Table("adls")
    party = await table.job("job", FILES, CommitterConfig(publish="auto"))
    pool = TablePool(table)
    await party.driver.commit(publish_with=pool)
    assert not pool.chunks
    assert table.files() == FILES

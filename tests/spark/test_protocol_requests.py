"""What a job of Spark's own writers is asked for, and refused, before a task runs; no Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from committer.errors import ConfigurationError, UnsupportedError
from committer.spark.protocol_jobs import SetupRequest, set_up


def request(tmp_path: Path, **fields: object) -> SetupRequest:
    given = {
        "job_id": "j",
        "destination": f"file:{tmp_path}/t",
        "dynamic": False,
        "superseded": (),
        "options": {},
        "release": "",
    }
    return SetupRequest(**{**given, **fields})  # type: ignore[arg-type]


async def test_an_overwrite_of_a_table_with_a_partition_at_a_hidden_name_is_refused(tmp_path: Path) -> None:
    """Its old rows would stay: names at the top that begin with _ or . are not superseded."""
    table = f"file:{tmp_path}/t"
    with pytest.raises(UnsupportedError, match="_old/p=9 is to be replaced"):
        await set_up(request(tmp_path, superseded=(table, f"{table}/_old/p=9")))
    assert not (tmp_path / "t" / "_temporary").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"committer.conflict_mode": "fail"},
        {"committer.superseded_scope": "destination"},
        {"committer.superseded_directories": "p=1"},
    ],
)
async def test_choices_that_are_the_save_mode_s_are_refused_and_not_ignored(
    tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="what Spark's save mode chooses"):
        await set_up(request(tmp_path, options=options))
    assert not (tmp_path / "t" / "_temporary").exists()

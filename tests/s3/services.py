"""Writes what services that speak like S3 can do into docs/stores/s3.md, so that no cell is typed by hand.

    uv run python -m tests.s3.services NAME VERSION    # tries the service, keeps what was seen, writes the tables
    uv run python -m tests.s3.services                 # writes the tables from what was kept

A service that `tests.s3.servers` cannot start by itself has to be on the PATH. What was seen is kept in services.json,
`?` where an ability was not tried.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import committer
from committer.errors import UnsupportedError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.stores.s3.examine import TRIALS
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, OTHERS, Server, moto, other, seaweedfs

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "s3.md"
KEPT = Path(__file__).with_name("services.json")
NAMES = ("SeaweedFS", "moto", *OTHERS)
JOBS = "jobs"
STEADY = [trial.name for trial in TRIALS if trial.steady]
_PLACE = re.compile(r"(<!-- probed: (\S+) -->\n)(.*?)(<!-- end probed -->)", re.DOTALL)


def started(name: str, directory: Path) -> AbstractContextManager[Server]:
    """A service, by its name in the table."""
    own = {"SeaweedFS": seaweedfs, "moto": moto}
    return own[name](directory) if name in own else other(name, directory)


async def tried(server: Server, root: StorePath) -> dict[str, str]:
    """What a service can do: `yes` or `no` for each trial, and whether a job commits."""
    store = S3Store.open_for(root, options_for(server))
    try:
        seen = {
            finding.name: {"ok": "yes", "skipped": "?"}.get(finding.verdict, "no")
            for finding in await store.findings(root, scratch=root / "trials")
            if finding.name in STEADY
        }
    finally:
        await store.close()
    seen[JOBS] = await _of_a_job(server, root / "table")
    return seen


async def _of_a_job(server: Server, destination: StorePath) -> str:
    try:
        async with committer.open_job(destination, storage_options=options_for(server)) as job:
            async with job.task_attempt(0) as task, task.open("file") as file:
                await file.write(b"data")
            await job.commit(tasks=1)
    except UnsupportedError:
        return "refused"
    return "yes"


def kept() -> dict[str, dict[str, Any]]:
    """What was seen of each service: its version, and what it can do."""
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return {name: found[name] for name in NAMES if name in found}


def services() -> str:
    """The table of services."""
    found = kept()
    rows = [("", *(f"{name} {one['version']}" for name, one in found.items()))]
    rows += [(name, *(one["can"][name] for one in found.values())) for name in STEADY]
    rows.append(("a job", *(one["can"][JOBS] for one in found.values())))
    return _markdown(rows)


def abilities() -> str:
    """The table of what is tried."""
    return _markdown(
        [("ability", "what is tried", "without it"), *((one.name, one.holds, one.without) for one in TRIALS)]
    )


TABLES = {"services": services, "abilities": abilities}


def written(text: str) -> str:
    """A page with its tables as they are to be."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{TABLES[place[2]]()}\n\n{place[4]}", text)


def _markdown(rows: list[tuple[str, ...]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def main(words: list[str]) -> None:
    """Tries a service, if one is named, and writes the page."""
    if words:
        name, version = words
        os.environ.update({KEY_ID_IS_IN: KEY_ID, KEY_IS_IN: KEY})
        with tempfile.TemporaryDirectory() as directory, started(name, Path(directory)) as server:
            seen = asyncio.run(tried(server, StorePath("s3", BUCKET, "/services")))
        found = {**(kept() if KEPT.exists() else {}), name: {"version": version, "can": seen}}
        KEPT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The emulator in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from committer_testing.emulators.gcs.__main__ import main

from .tls import certificate_in


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[str]:
    """Starts an emulator and yields its URL; the emulator must exit with 0 when stopped."""
    command = (sys.executable, "-m", "committer_testing.emulators.gcs", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        left, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, left, errors) == (0, b"", b"")


async def test_it_serves_what_it_was_told() -> None:
    async with (
        served("--bucket", "data", "--bucket", "more", "--token", "right", "--hierarchical", "--without-move") as url,
        aiohttp.ClientSession(url, headers={"Authorization": "Bearer right"}) as session,
    ):
        for name in ("data", "more"):
            async with session.get(f"/storage/v1/b/{name}/storageLayout") as answer:
                assert (await answer.json())["hierarchicalNamespace"]["enabled"] is True
        async with session.post("/storage/v1/b/data/o/a/moveTo/o/b") as answer:
            assert answer.status == 501
        async with session.get("/storage/v1/b/data/o", headers={"Authorization": "Bearer wrong"}) as answer:
            assert answer.status == 401


async def test_rates_soft_delete_and_tls_are_options(tmp_path: Path) -> None:
    limits = ("--rate", "1", "--soft-delete-seconds", "60", "--project", "mine", "--object-change-seconds", "1")
    certificate = str(certificate_in(tmp_path))
    async with (
        served("--bucket", "data", *limits, "--certificate", certificate) as url,
        aiohttp.ClientSession() as session,
    ):
        assert url.startswith("https://127.0.0.1:")
        async with session.get(f"{url}/storage/v1/b?project=mine", ssl=False) as answer:
            found = (await answer.json())["items"]
        assert found[0]["softDeletePolicy"]["retentionDurationSeconds"] == "60"
        async with session.get(f"{url}/storage/v1/b/data", ssl=False) as answer:
            assert answer.status == 429


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--bucket", "No"], "Invalid bucket name"), (["--certificate", "/nothing.pem"], "No such file")],
)
def test_what_makes_no_sense_is_said(arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        main(arguments)

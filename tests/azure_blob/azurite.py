"""Azurite, Microsoft's own emulator of the blob service: fetched once by npm (tests/fetched.py), run on a port of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import BlobServiceClient

from tests.fetched import FETCHED
from tests.free_ports import free_port

VERSION = "3.37.0"
ACCOUNT = "lakeaccount"
KEY = "bGFrZS1jb21taXR0ZXItdGVzdHMtb25seS1ub3QtYS1zZWNyZXQ="
CONTAINER = "data"
KEY_IS_IN = "AZURE_BLOB_TEST_KEY"
_FETCH_S = 180
_UP_S = 60.0


class Azurite(NamedTuple):
    """One that runs.

    Attributes:
        endpoint: The account's blob endpoint.
        client: The vendor's client of it: the way to the server that does not go through the store. Blocks.
    """

    endpoint: str
    client: Any

    def options(self, **others: object) -> dict[str, object]:
        """What leads the store there."""
        return {"account_name": ACCOUNT, "endpoint": self.endpoint, "account_key": f"env:{KEY_IS_IN}", **others}


def program() -> Path:
    """The script that Node runs; skips the test where it cannot be had."""
    directory = FETCHED / f"azurite-{VERSION}"
    main = directory / "node_modules/azurite/dist/src/blob/main.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or (npm is None and not main.is_file()):
        pytest.skip("Azurite runs on Node and is fetched by npm: one of them is not installed")
    if main.is_file() or npm is None:
        return main
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", ".", f"azurite@{VERSION}"]
    try:
        done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not fetch Azurite within {_FETCH_S} s")
    if done.returncode != 0:
        pytest.skip(f"npm could not fetch Azurite: {done.stderr.strip()[-300:]}")
    try:
        partial.rename(directory)
    except OSError:
        # Another process of the same run was faster.
        shutil.rmtree(partial)
    return main


@contextmanager
def azurite(directory: Path) -> Iterator[Azurite]:
    """Azurite with an account and a container of the tests' own, all in memory."""
    main = program()
    log = directory / "log"
    for tries_left in (2, 1, 0):
        port = free_port()
        command = [
            "node", str(main), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry",
            "--blobHost", "127.0.0.1", "--blobPort", str(port),
        ]  # fmt: skip
        # The second one is that of the page of this store.
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY};lake:bGFrZQ=="}
        with (
            log.open("wb") as out,
            subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=directory, env=environment
            ) as process,
        ):
            try:
                endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
                with closing(_ready(endpoint, process)) as client:
                    if process.poll() is None:
                        yield Azurite(endpoint, client)
                        return
            finally:
                process.kill()
        # Another process took the port in between.
        if not tries_left:
            pytest.fail(f"Azurite did not start: {log.read_text()[-2000:]}")


def _ready(endpoint: str, process: subprocess.Popen[bytes]) -> Any:
    client = BlobServiceClient(endpoint, credential={"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    deadline = time.monotonic() + _UP_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            client.create_container(CONTAINER)
            break
        except ResourceExistsError:
            break
        except AzureError:
            time.sleep(0.1)
    return client

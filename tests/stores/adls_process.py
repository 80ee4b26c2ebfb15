"""An emulated account in a process of its own, as another process meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from committer.testing.emulators.adls import DEFAULT_KEY
from tests.processes.harness import TIMEOUT_S, environment
from tests.stores.adls_account import AUTHORITY


class Account:
    """A running account with an empty filesystem, `data`.

    Args:
        url: Where it serves.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.endpoint = f"{url}.dfs.emulator"

    def uri(self, path: str) -> str:
        return f"abfss://{AUTHORITY}/{path}"

    def control(self, method: str, call: str, body: object = None) -> Any:
        """A control call; blocks."""
        request = urllib.request.Request(
            f"{self.url.rpartition('/')[0]}/_control/{call}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def files(self, directory: str) -> dict[str, int]:
        """The length of every file below a directory, as the official client lists it; blocks."""
        filedatalake = pytest.importorskip("azure.storage.filedatalake")
        with filedatalake.DataLakeServiceClient(self.url, credential=DEFAULT_KEY) as service:
            paths = service.get_file_system_client("data").get_paths(directory)
            return {
                path.name.removeprefix(f"{directory}/"): path.content_length for path in paths if not path.is_directory
            }

    def read(self, path: str) -> bytes:
        """What a file holds, as the official client reads it; blocks."""
        filedatalake = pytest.importorskip("azure.storage.filedatalake")
        with filedatalake.DataLakeServiceClient(self.url, credential=DEFAULT_KEY) as service:
            return bytes(service.get_file_client("data", path).download_file().readall())


@contextmanager
def account_process(*arguments: str) -> Iterator[Account]:
    """Starts one; it is dead when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "committer.testing.emulators.adls", "--filesystem", "data", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http"), "it did not start"
        yield Account(url)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        process.stdout.close()

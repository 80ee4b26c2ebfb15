"""An emulated account in a process of its own, as another process meets it."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from committer_testing.emulators.adls import DEFAULT_KEY
from tests.processes.harness import TIMEOUT_S, serving
from tests.stores.adls_account import AUTHORITY


class Account:
    """A running account with an empty filesystem, `data`. Its methods block.

    Args:
        url: Where it serves.
        key: Its key.
        certificate: Of a server that speaks TLS.
    """

    def __init__(self, url: str, key: str, certificate: Path | None) -> None:
        self.url = url
        self.endpoint = f"{url}.dfs.emulator"
        self.key = key
        self._certificate = certificate

    def uri(self, path: str) -> str:
        return f"abfss://{AUTHORITY}/{path}"

    def control(self, method: str, call: str, body: object = None) -> Any:
        """A control call."""
        request = urllib.request.Request(
            f"{self.url.rpartition('/')[0]}/_control/{call}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        trust = None if self._certificate is None else ssl.create_default_context(cafile=str(self._certificate))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:
            return json.load(answer)

    def sizes(self, directory: str) -> dict[str, int]:
        """The length of every file below a directory, as the official client lists it."""
        with self._official() as service:
            paths = service.get_file_system_client("data").get_paths(directory)
            return {
                path.name.removeprefix(f"{directory}/"): path.content_length for path in paths if not path.is_directory
            }

    def files(self, directory: str) -> dict[str, bytes]:
        """Every file below a directory, as the official client reads it."""
        with self._official() as service:
            return {
                name: bytes(service.get_file_client("data", f"{directory}/{name}").download_file().readall())
                for name in self.sizes(directory)
            }

    def _official(self) -> Any:
        official = pytest.importorskip("azure.storage.filedatalake")
        trust = True if self._certificate is None else str(self._certificate)
        return official.DataLakeServiceClient(self.url, credential=self.key, connection_verify=trust)


@contextmanager
def account_process(*arguments: str, key: str = DEFAULT_KEY, certificate: Path | None = None) -> Iterator[Account]:
    """Starts one; it is dead when the block ends."""
    if certificate is not None:
        arguments = (*arguments, "--certificate", str(certificate))
    command = ("-m", "committer_testing.emulators.adls", "--filesystem", "data", "--key", key, *arguments)
    with serving(*command) as url:
        yield Account(url, key, certificate)

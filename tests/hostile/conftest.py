"""The server that no emulator stands for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("boto3") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from tests.s3.servers import Server, moto


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server

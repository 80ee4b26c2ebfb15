"""An emulated service for each test, and the official client on it, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import aiohttp
import pytest

from committer_testing.emulators import gcs as google
from committer_testing.emulators.adls import AdlsEmulator, serve
from committer_testing.emulators.gcs import GcsEmulator
from tests.emulators.hadoop_azure import Abfs, jars
from tests.emulators.hadoop_google import jars as google_jars
from tests.interop.jvm import Jvm, jvm_fixture

if TYPE_CHECKING:
    from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient
    from google.cloud.storage import Bucket

    from .google_clients import Wire

# The judges are extras: `adls` brings the official clients of Azure, `spark` Hadoop and the way into its JVM. Google's
# client is in the test group.
collect_ignore_glob = []
if find_spec("azure") is None or find_spec("azure.storage.filedatalake") is None:
    collect_ignore_glob.append("test_adls_*.py")
if find_spec("google") is None or find_spec("google.cloud") is None or find_spec("google.cloud.storage") is None:
    collect_ignore_glob.append("test_gcs_*.py")
if find_spec("py4j") is None:
    collect_ignore_glob += [
        "test_adls_hadoop.py",
        "test_adls_java_jobs.py",
        "test_gcs_hadoop.py",
        "test_gcs_java_jobs.py",
    ]


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        yield emulator


@pytest.fixture
async def service(emulator: AdlsEmulator) -> AsyncIterator[DataLakeServiceClient]:
    from .clients import client

    async with client(emulator) as service:
        yield service


@pytest.fixture
async def files(service: DataLakeServiceClient) -> AsyncIterator[FileSystemClient]:
    """An empty filesystem, `data`."""
    async with await service.create_file_system("data") as files:
        yield files


# Java with hadoop-azure.
jvm = jvm_fixture(jars)


@pytest.fixture
async def abfs(jvm: Jvm, emulator: AdlsEmulator) -> AsyncIterator[Abfs]:
    """Hadoop's client on a filesystem, `data`."""
    abfs = await Abfs(jvm, emulator, "data").open()
    yield abfs
    await abfs.close()


@pytest.fixture
async def gcs() -> AsyncIterator[GcsEmulator]:
    """Google Cloud Storage with an empty bucket, `data`."""
    async with google.serve() as emulator:
        emulator.make_bucket("data")
        yield emulator


@pytest.fixture
async def bucket(gcs: GcsEmulator) -> Bucket:
    """That bucket in Google's client."""
    from .google_clients import google_client, off_loop

    return await off_loop(lambda: google_client(gcs).bucket("data"))


@pytest.fixture
async def wire(gcs: GcsEmulator) -> AsyncIterator[Wire]:
    """Calls that Google's client cannot make."""
    from .google_clients import Wire

    async with aiohttp.ClientSession() as session:
        yield Wire(gcs, session)


# Java with Google's connector.
google_jvm = jvm_fixture(google_jars)

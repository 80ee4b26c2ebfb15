"""What a long stream to Google Cloud Storage takes of memory: chunks, however long it is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from committer.stores.gcs import GcsStore
from committer.stores.gcs.writer import CHUNK_BYTES
from tests.processes.harness import serving
from tests.stores.gcs_bucket import ROOT

SCRIPT = Path(__file__).with_name("discarding_bucket.py")
# What is kept, its copy that is sent, and what the connection holds of it: one chunk is in flight at a time.
CHUNKS = 3
REST_BYTES = 4 << 20
PIECE = bytes(range(256)) * 2_048


@pytest.fixture
def url() -> Iterator[str]:
    with serving(str(SCRIPT)) as url:
        yield url


@pytest.mark.parametrize("length", [96 << 20, pytest.param(2 << 30, marks=pytest.mark.slow)])
async def test_a_stream_holds_chunks_whatever_its_length(url: str, length: int) -> None:
    store = GcsStore.open_for(ROOT, {"endpoint": url})
    tracemalloc.start()
    try:
        writer = await store.open_writer(ROOT / "stream")
        for _ in range(length // len(PIECE)):
            await writer.write(PIECE)
        status = await writer.close()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status.size == length
    assert CHUNK_BYTES < most <= CHUNKS * CHUNK_BYTES + REST_BYTES
    await store.close()

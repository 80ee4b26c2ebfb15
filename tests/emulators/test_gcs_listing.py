"""Listings: prefixes, pages, offsets and the choice of fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.storage import Bucket

from .google_clients import Wire, names, off_loop

NAMES = ["a", "a/", "a/1", "a/b/", "a/b/2", "a/b/c/3", "a0", "b", "ü/1", "🎉"]


@pytest.fixture
async def filled(wire: Wire) -> None:
    """The bucket with those objects, made in another order."""
    for name in reversed(NAMES):
        await wire.insert("".join(f"%{byte:02X}" for byte in name.encode()), b"")


async def everything(wire: Wire, query: str) -> tuple[list[str], list[str], int]:
    """Names, prefixes and the number of pages of a listing."""
    items: list[str] = []
    prefixes: list[str] = []
    pages, token = 0, ""
    while True:
        answer = (await wire("GET", f"/storage/v1/b/data/o?{query}{token}")).json
        pages += 1
        items += [one["name"] for one in answer.get("items", [])]
        prefixes += answer.get("prefixes", [])
        if "nextPageToken" not in answer:
            return items, prefixes, pages
        token = f"&pageToken={answer['nextPageToken']}"


@pytest.mark.usefixtures("filled")
async def test_names_come_in_the_order_of_their_bytes_with_prefixes(bucket: Bucket) -> None:
    assert await names(bucket) == sorted(NAMES, key=str.encode) == NAMES
    assert await names(bucket, prefix="a/") == NAMES[1:6]
    assert await names(bucket, prefix="a/b/c/3x") == []

    def listed() -> tuple[list[str], set[str]]:
        found = bucket.list_blobs(delimiter="/", page_size=2, retry=None)
        return [blob.name for blob in found], found.prefixes

    assert await off_loop(listed) == (["a", "a0", "b", "🎉"], {"a/", "ü/"})


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("query", "items", "prefixes"),
    [
        ("", NAMES, []),
        ("delimiter=/", ["a", "a0", "b", "🎉"], ["a/", "ü/"]),
        ("delimiter=/&includeTrailingDelimiter=true", ["a", "a/", "a0", "b", "🎉"], ["a/", "ü/"]),
        ("delimiter=/&prefix=a/", ["a/", "a/1"], ["a/b/"]),
        ("delimiter=/&prefix=a/&includeTrailingDelimiter=true", ["a/", "a/1", "a/b/"], ["a/b/"]),
        ("delimiter=/&prefix=a", ["a", "a0"], ["a/"]),
        ("startOffset=a/b/&endOffset=b", ["a/b/", "a/b/2", "a/b/c/3", "a0"], []),
        ("delimiter=/&prefix=a/&startOffset=a/2", [], ["a/b/"]),
        ("prefix=a/&startOffset=a", NAMES[1:6], []),
        ("prefix=a/&endOffset=a/1", ["a/"], []),
    ],
)
@pytest.mark.usefixtures("filled")
async def test_pages_hold_everything_once(
    wire: Wire, most: int, query: str, items: list[str], prefixes: list[str]
) -> None:
    found = await everything(wire, f"maxResults={most}&{query}")
    # An object that is its prefix, too, comes with it.
    entries = len(set(items) | set(prefixes))
    assert found == (items, prefixes, max(1, -(-entries // most)))


@pytest.mark.usefixtures("filled")
async def test_what_comes_and_goes_between_pages_hides_nothing(wire: Wire) -> None:
    answer = (await wire("GET", "/storage/v1/b/data/o?maxResults=3")).json
    token = answer["nextPageToken"]
    await wire("DELETE", "/storage/v1/b/data/o/a%2Fb%2F")
    await wire.insert("a%2F0", b"")
    left = (await wire("GET", f"/storage/v1/b/data/o?pageToken={token}")).json
    assert [one["name"] for one in left["items"]] == NAMES[4:]


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ("items(name,metadata),nextPageToken", {"items": [{"name": "one", "metadata": {"k": "v"}}]}),
        ("items/name", {"items": [{"name": "one"}]}),
        ("items/name,kind", {"items": [{"name": "one"}], "kind": "storage#objects"}),
        ("items(name,metadata/k)", {"items": [{"name": "one", "metadata": {"k": "v"}}]}),
        ("items(metadata(k)),prefixes", {"items": [{"metadata": {"k": "v"}}]}),
        ("prefixes", {}),
    ],
)
async def test_fields_are_chosen(bucket: Bucket, wire: Wire, fields: str, given: Any) -> None:
    def put() -> None:
        blob = bucket.blob("one")
        blob.metadata = {"k": "v"}
        blob.upload_from_string(b"", retry=None)

    await off_loop(put)
    assert (await wire("GET", f"/storage/v1/b/data/o?fields={fields}")).json == given

"""The snippets of the page of Azure's blobs, on Azurite; see tests/test_snippets.py."""

from __future__ import annotations

from pathlib import Path

from azure.storage.blob import ContainerClient

from tests.azure_blob.azurite import VERSION, Azurite
from tests.snippets import ROOT, run_in_child, runnable

PAGE = "docs/stores/azure-blob.md"
ADDRESS = "http://127.0.0.1:10000"


def test_the_page_from_an_empty_folder_to_a_committed_job(server: Azurite, tmp_path: Path) -> None:
    origin = server.endpoint.rpartition("/")[0]
    found = [one._replace(text=one.text.replace(ADDRESS, origin)) for one in runnable(PAGE)]
    assert any(origin in one.text for one in found)
    assert run_in_child(found, tmp_path) == "True\n"
    with ContainerClient(f"{origin}/lake", "data", {"account_name": "lake", "account_key": "bGFrZQ=="}) as client:
        assert sorted(client.list_blob_names()) == ["table/_SUCCESS", "table/year=2026/part-00000.csv"]


def test_its_commands_are_those_that_start_the_server_of_the_tests() -> None:
    text = (ROOT / PAGE).read_text("utf-8")
    assert f"npm install azurite@{VERSION}" in text
    for word in ("azurite/dist/src/blob/main.js", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort 10000"):
        assert word in text

"""The names of the storage options of Azure's blobs: those of Azure Data Lake Storage, but for what they lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from committer.storage_options import StorageOption
from committer.stores.azure.names import TABLE as ADLS
from committer.stores.azure.options import Service

SCHEMES: Final = ("az", "wasb", "wasbs")

_MEANINGS: Final = {
    "endpoint": "the account's blob endpoint, where it is not `https://ACCOUNT.blob.core.windows.net`, or what follows"
    " the `@` in the path: a private link, the emulator",
    "client": "a `BlobServiceClient` or `ContainerClient` of `azure-storage-blob`, blocking or not: its endpoint and"
    " its credential",
    "account_name": "the account, of a path `az://CONTAINER/PATH`, which names none; of other paths another one is"
    " refused",
}


def _described(option: StorageOption) -> StorageOption:
    return replace(option, meaning=_MEANINGS.get(option.name, option.meaning))


TABLE: Final = replace(ADLS, store="Azure Blob Storage", options=tuple(map(_described, ADLS.options)))

BLOB: Final = Service("blob", TABLE, "BlobServiceClient", "ContainerClient", "container_name", "azure-storage-blob")

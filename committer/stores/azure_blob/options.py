"""Storage options of Azure Blob Storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from committer.errors import ConfigurationError, InvalidPathError
from committer.options.references import resolved
from committer.options.storage import StorageOption, no_text
from committer.stores.azure.options import TABLE as ADLS
from committer.stores.azure.options import Service, parse_connection_string

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


def place_of(scheme: str, authority: str) -> tuple[str, str]:
    """Splits a URI's authority into container and host; the host is empty if it names the container alone."""
    container, at, host = authority.partition("@")
    if container and (host if at else scheme == "az"):
        return container, host
    raise InvalidPathError(
        f"{scheme}://{authority} names no container and account",
        next_step="write az://container/path and give account_name, or "
        "wasbs://container@account.blob.core.windows.net/path",
    )


def account_of(options: Mapping[str, object], host: str) -> str:
    """Returns the account named by the path's host, else by the options; may block to read a file."""
    if host:
        return host.partition(".")[0]
    given = {option.name: options[key] for key in options if (option := _found(key)) is not None}
    name = given.get("account_name")
    if name is not None:
        if not isinstance(name, str) or not name:
            raise no_text("account_name")
        return resolved(name, "account_name")
    if given.get("connection_string") is not None:
        named = parse_connection_string(given["connection_string"]).get("accountname", "")
        if named:
            return named
    client = str(getattr(given.get("client"), "account_name", "") or "")
    if client:
        return client
    raise ConfigurationError(
        "the path names a container and no account",
        operation="open_store",
        next_step="give account_name, or write wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/PATH",
    )


def _found(key: str) -> StorageOption | None:
    return None if TABLE.is_hadoop(key) else TABLE.find(key)

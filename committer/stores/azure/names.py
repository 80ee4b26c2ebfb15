"""The names of the storage options of Azure's accounts: this library's, and those of Hadoop, delta-rs, Polars and
adlfs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from committer.errors import ConfigurationError
from committer.option_values import SPARK_HADOOP
from committer.references import resolved
from committer.storage_options import OptionTable, StorageOption, exclusive

_EMULATOR: Final = "give endpoint=http://127.0.0.1:10000/devstoreaccount1 and account_key"
_FOUND: Final = "leave it out: DefaultAzureCredential finds it, from the environment or by `az login`"
_IDENTITY: Final = "leave it out: DefaultAzureCredential finds managed identities; AZURE_CLIENT_ID says which"
_CREDENTIAL: Final = "give credential=, an object with get_token, as azure-identity's are"

TABLE: Final = OptionTable(
    store="Azure Data Lake Storage",
    options=(
        StorageOption(
            "endpoint",
            "the account's DFS endpoint, where it is not `https://` and what follows the `@` in the path: a private"
            " link, the emulator",
            others=("azure_storage_endpoint", "azure_endpoint"),
            hadoop=("fs.azure.abfs.endpoint",),
        ),
        StorageOption(
            "account_key",
            "the account's key",
            secret=True,
            others=(
                "azure_storage_account_key", "azure_storage_access_key", "azure_storage_master_key", "access_key",
                "master_key",
            ),
            hadoop=("fs.azure.account.key",),
        ),
        StorageOption(
            "sas_token",
            "a shared access signature, with or without its question mark",
            secret=True,
            others=("azure_storage_sas_token", "azure_storage_sas_key", "sas_key"),
            hadoop=("fs.azure.sas.fixed.token", "fs.azure.sas"),
        ),
        StorageOption(
            "connection_string",
            "with `AccountKey` or `SharedAccessSignature`; it also names the endpoint",
            secret=True,
            others=("azure_storage_connection_string",),
        ),
        StorageOption(
            "credential",
            "any object with `get_token`, blocking or not (`azure-identity`); also `AzureSasCredential`,"
            " `AzureNamedKeyCredential`",
            instance=True,
        ),
        StorageOption(
            "client",
            "a `DataLakeServiceClient` or `FileSystemClient` of `azure-storage-file-datalake`, blocking or not: its"
            " endpoint and its credential",
            instance=True,
        ),
        StorageOption(
            "tenant_id",
            "of a service principal; the next two go with it",
            others=(
                "azure_storage_tenant_id", "azure_storage_authority_id", "azure_tenant_id", "azure_authority_id",
                "authority_id",
            ),
            hadoop=("fs.azure.account.oauth2.client.endpoint",),
            goes_with="client_secret",
        ),
        StorageOption(
            "client_id",
            "the service principal",
            others=("azure_storage_client_id", "azure_client_id"),
            hadoop=("fs.azure.account.oauth2.client.id",),
            goes_with="client_secret",
        ),
        StorageOption(
            "client_secret",
            "its secret",
            secret=True,
            others=("azure_storage_client_secret", "azure_client_secret"),
            hadoop=("fs.azure.account.oauth2.client.secret",),
        ),
        StorageOption(
            "account_name", "the path says it; another one is refused", others=("azure_storage_account_name",)
        ),
        StorageOption(
            "container_name", "the path says it; another one is refused", others=("azure_container_name",)
        ),
        StorageOption("http_session", "an aiohttp session to send requests with", instance=True),
    ),
    advice={
        **dict.fromkeys(("token", "bearer_token", "azure_storage_token"), _CREDENTIAL),
        **dict.fromkeys(
            (
                "azure_msi_endpoint", "msi_endpoint", "azure_identity_endpoint", "identity_endpoint", "azure_object_id",
                "object_id", "azure_msi_resource_id", "msi_resource_id",
            ),
            _IDENTITY,
        ),
        **dict.fromkeys(("azure_federated_token_file", "federated_token_file"), _FOUND),
        **dict.fromkeys(
            ("azure_storage_authority_host", "azure_authority_host", "authority_host"),
            "set AZURE_AUTHORITY_HOST, which azure-identity reads",
        ),
        "account_host": "give endpoint=https://HOST",
        **dict.fromkeys(("request_session", "session"), "give http_session=, an aiohttp session"),
        **dict.fromkeys(
            ("max_concurrency", "max_retries", "retry_timeout_ms", "timeout", "connect_timeout", "socket_timeout"),
            "give config=CommitterConfig(io_concurrency=..., io_rate=...): those are choices of the commit",
        ),
    },
    switches={
        **dict.fromkeys(
            ("anon", "azure_skip_signature", "skip_signature"),
            "leave it out: a commit writes, and an account lets no anonymous client write",
        ),
        **dict.fromkeys(("azure_use_azure_cli", "use_azure_cli"), _FOUND),
        **dict.fromkeys(("azure_storage_use_emulator", "object_store_use_emulator", "use_emulator"), _EMULATOR),
        **dict.fromkeys(
            ("azure_use_fabric_endpoint", "use_fabric_endpoint"),
            "write the path with the host onelake.dfs.fabric.microsoft.com",
        ),
        "assume_container_exists": "leave it out: nothing here makes a container",
    },
    hadoop_prefix="fs.azure.",
    hadoop_only=("fs.azure.account.auth.type", "fs.azure.account.oauth.provider.type", "fs.azure.always.use.https"),
    hadoop_access=frozenset({"fs.azure.account.auth.type", "fs.azure.account.oauth.provider.type"}),
    hadoop_found=("MsiTokenProvider", "WorkloadIdentityTokenProvider"),
)  # fmt: skip

_PROVIDERS: Final = "org.apache.hadoop.fs.azurebfs.oauth2."
_AUTH: Final = {
    "SHAREDKEY": ("fs.azure.account.key",),
    "OAUTH": tuple(key for key in TABLE.hadoop_keys if ".oauth2." in key),
    "SAS": ("fs.azure.sas.fixed.token", "fs.azure.sas"),
}
_TENANT: Final = re.compile(r"https://[^/]+/([^/]+)/oauth2(?:/v2\.0)?/token/?")
_SCOPE: Final = re.compile(r"(?:([^.]+)\.)?([^.]+)\.(?:dfs|blob)\..+")


def with_hadoop(
    options: Mapping[str, object], account: str, container: str, *, secure: bool = True
) -> dict[str, object]:
    """The options with Hadoop's ``fs.azure.`` keys read as this library's; one for the account wins over a general one.

    Where ``fs.azure.account.auth.type`` is given, it says which of them count.

    Args:
        options: As they were given.
        account: The account's name.
        container: The container.
        secure: Whether the path's scheme, ``abfss``, asks for TLS whatever Hadoop's keys say.

    Raises:
        ConfigurationError: A key is unknown, is for another account alone, has a value it cannot have, or gives what
            an option gives, too.
    """
    own = {key: value for key, value in options.items() if not TABLE.is_hadoop(key)}
    found = _hadoop_of(options, account, container)
    if not found:
        return own
    tls = found.pop("fs.azure.always.use.https", "true").strip().lower()
    kind = found.pop("fs.azure.account.auth.type", "").strip().upper()
    if kind and kind not in _AUTH:
        raise _bad(f"the option fs.azure.account.auth.type is {kind}, which is not here", _CREDENTIAL)
    provider = found.pop("fs.azure.account.oauth.provider.type", "").strip().removeprefix(_PROVIDERS)
    if provider and provider != "ClientCredsTokenProvider" and kind in ("", "OAUTH"):
        known = provider in TABLE.hadoop_found
        step = "leave Hadoop's OAuth keys out: DefaultAzureCredential finds this identity; AZURE_CLIENT_ID says which"
        raise _bad(
            f"the option fs.azure.account.oauth.provider.type names {provider}, which is not here",
            step if known else _CREDENTIAL,
        )
    spelled = {option.name: key for key in own if (option := TABLE.find(key)) is not None and own[key] is not None}
    for base, text in found.items():
        option = TABLE.find(base)
        assert option is not None  # noqa: S101
        if kind and option.name != "endpoint" and base not in _AUTH[kind]:
            continue
        if option.name in spelled:
            raise exclusive(spelled[option.name], base)
        if option.name == "tenant_id":
            text = _tenant_in(text, base)
        elif option.name == "endpoint":
            if ":" not in text:
                # As in Hadoop (``AzureBlobFileSystemStore.getURIBuilder``): it is for tests, and names a port.
                continue
            text = f"{'https' if secure or tls != 'false' else 'http'}://{text}/{account}"
        own[option.name] = text
    return own


def _hadoop_of(options: Mapping[str, object], account: str, container: str) -> dict[str, str]:
    """Hadoop's keys that are for this account, without its name."""
    found: dict[str, tuple[int, str]] = {}
    elsewhere: str | None = None
    for key, value in options.items():
        if not TABLE.is_hadoop(key) or value is None:
            continue
        option, plain = TABLE.find(key), key.lower().removeprefix(SPARK_HADOOP)
        base = TABLE.hadoop_base(plain)
        assert base is not None  # noqa: S101
        scope = plain.removeprefix(base).removeprefix(".")
        weight = 0
        if scope:
            named = _SCOPE.fullmatch(scope)
            if named is None:
                raise _bad(f"the option {key} is not known", f"write {base}.{account}.dfs.core.windows.net, or {base}")
            if named[2] != account.lower() or named[1] not in (None, container.lower()):
                elsewhere = key
                continue
            weight = 2 if named[1] else 1
        text = str(value) if option is not None and option.secret else resolved(str(value), key)
        if base not in found or found[base][0] <= weight:
            found[base] = (weight, text)
    if elsewhere is not None and not found:
        raise _bad(f"the option {elsewhere} is for another account or container than the path's, {container}@{account}")
    if "fs.azure.sas.fixed.token" in found:
        found.pop("fs.azure.sas", None)
    return {base: text for base, (_weight, text) in found.items()}


def _tenant_in(endpoint: str, key: str) -> str:
    named = _TENANT.fullmatch(endpoint.strip())
    if named is None:
        raise _bad(f"the option {key} is no https://HOST/TENANT/oauth2/token", "give tenant_id")
    return named[1]


def _bad(message: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(message, operation="open_store", next_step=next_step)

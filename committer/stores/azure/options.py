"""Storage options of Azure's storage accounts, and their names in Hadoop, adlfs and object_store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from committer.options.references import Held, Secret, is_reference, resolved
from committer.options.storage import CHOICES, OptionTable, StorageOption, by_name, exclusive, refused
from committer.options.values import SPARK_HADOOP
from committer.stores.azure.access import Access, ServicePrincipal, SharedAccessSignature, SharedKey, Token
from committer.stores.http import checked_endpoint

_FOUND: Final = "leave it out: DefaultAzureCredential finds it, from the environment or by `az login`"
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
    advice=by_name({
        _CREDENTIAL: ("token", "bearer_token", "azure_storage_token"),
        "leave it out: DefaultAzureCredential finds managed identities; AZURE_CLIENT_ID says which": (
            "azure_msi_endpoint", "msi_endpoint", "azure_identity_endpoint", "identity_endpoint", "azure_object_id",
            "object_id", "azure_msi_resource_id", "msi_resource_id",
        ),
        _FOUND: ("azure_federated_token_file", "federated_token_file"),
        "set AZURE_AUTHORITY_HOST, which azure-identity reads": (
            "azure_storage_authority_host", "azure_authority_host", "authority_host",
        ),
        "give endpoint=https://HOST": ("account_host",),
        "give http_session=, an aiohttp session": ("request_session", "session"),
        CHOICES: (
            "max_concurrency", "max_retries", "retry_timeout_ms", "timeout", "connect_timeout", "socket_timeout",
        ),
    }),
    switches=by_name({
        "leave it out: a commit writes, and an account lets no anonymous client write": (
            "anon", "azure_skip_signature", "skip_signature",
        ),
        _FOUND: ("azure_use_azure_cli", "use_azure_cli"),
        "give endpoint=http://127.0.0.1:10000/devstoreaccount1 and account_key": (
            "azure_storage_use_emulator", "object_store_use_emulator", "use_emulator",
        ),
        "write the path with the host onelake.dfs.fabric.microsoft.com": (
            "azure_use_fabric_endpoint", "use_fabric_endpoint",
        ),
        "leave it out: nothing here makes a container": ("assume_container_exists",),
    }),
    hadoop_prefix="fs.azure.",
    hadoop_only=("fs.azure.account.auth.type", "fs.azure.account.oauth.provider.type", "fs.azure.always.use.https"),
    hadoop_access=frozenset({"fs.azure.account.auth.type", "fs.azure.account.oauth.provider.type"}),
    hadoop_found=("MsiTokenProvider", "WorkloadIdentityTokenProvider"),
)  # fmt: skip

_ENDPOINT: Final = "fs.azure.abfs.endpoint"
_OAUTH_ENDPOINT: Final = "fs.azure.account.oauth2.client.endpoint"
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
    """Translates Hadoop's ``fs.azure.`` keys to this library's options; a key for the account wins.

    ``fs.azure.account.auth.type``, if given, selects the keys that count. `secure` (scheme ``abfss``) means TLS.
    """
    found = _hadoop_of(options, account, container)
    tls = found.get("fs.azure.always.use.https", "true").strip().lower()
    kind = found.get("fs.azure.account.auth.type", "").strip().upper()
    if kind and kind not in _AUTH:
        raise refused(f"the option fs.azure.account.auth.type is {kind}, which is not here", _CREDENTIAL)
    provider = found.get("fs.azure.account.oauth.provider.type", "").strip().removeprefix(_PROVIDERS)
    if provider and provider != "ClientCredsTokenProvider" and kind in ("", "OAUTH"):
        known = provider in TABLE.hadoop_found
        step = "leave Hadoop's OAuth keys out: DefaultAzureCredential finds this identity; AZURE_CLIENT_ID says which"
        raise refused(
            f"the option fs.azure.account.oauth.provider.type names {provider}, which is not here",
            step if known else _CREDENTIAL,
        )
    translated: dict[str, str] = {}
    for base, text in found.items():
        if base == _ENDPOINT:
            if ":" not in text:
                # As in Hadoop (``AzureBlobFileSystemStore.getURIBuilder``): the key is for tests, and names a port.
                continue
            text = f"{'https' if secure or tls != 'false' else 'http'}://{text}/{account}"
        elif kind and base not in _AUTH[kind]:
            continue
        elif base == _OAUTH_ENDPOINT:
            text = _tenant_in(text, base)
        translated[base] = text
    return TABLE.with_hadoop(options, translated)


def _hadoop_of(options: Mapping[str, object], account: str, container: str) -> dict[str, str]:
    """Returns Hadoop's keys for this account, without its name, and their values."""
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
                raise refused(
                    f"the option {key} is not known", f"write {base}.{account}.dfs.core.windows.net, or {base}"
                )
            if named[2] != account.lower() or named[1] not in (None, container.lower()):
                elsewhere = key
                continue
            weight = 2 if named[1] else 1
        text = str(value) if option is not None and option.secret else resolved(str(value), key)
        if base not in found or found[base][0] <= weight:
            found[base] = (weight, text)
    if elsewhere is not None and not found:
        raise refused(
            f"the option {elsewhere} is for another account or container than the path's, {container}@{account}"
        )
    if "fs.azure.sas.fixed.token" in found:
        found.pop("fs.azure.sas", None)
    return {base: text for base, (_weight, text) in found.items()}


def _tenant_in(endpoint: str, key: str) -> str:
    named = _TENANT.fullmatch(endpoint.strip())
    if named is None:
        raise refused(f"the option {key} is no https://HOST/TENANT/oauth2/token", "give tenant_id")
    return named[1]


_PRINCIPAL: Final = ("tenant_id", "client_id", "client_secret")


class Service(NamedTuple):
    """Service (DFS or blob) of a storage account, with names in Azure's SDK."""

    name: str
    table: OptionTable
    service_client: str
    container_client: str
    container_attribute: str
    package: str

    def endpoint_in(self, parts: Mapping[str, str]) -> str:
        """Returns the service's endpoint in a parsed connection string; empty if it names none."""
        if parts.get(f"{self.name}endpoint"):
            return parts[f"{self.name}endpoint"]
        other = "blob" if self.name == "dfs" else "dfs"
        if parts.get(f"{other}endpoint"):
            return parts[f"{other}endpoint"].replace(f".{other}.", f".{self.name}.", 1)
        return ""


DFS: Final = Service(
    "dfs", TABLE, "DataLakeServiceClient", "FileSystemClient", "file_system_name", "azure-storage-file-datalake"
)


def reached_by(
    options: Mapping[str, object],
    account: str,
    container: str,
    host: str,
    service: Service = DFS,
    *,
    secure: bool = True,
) -> tuple[str, Access]:
    """Returns an account's endpoint (by default on `host`) and access, by storage options; may read files.

    The options have any name in the service's table. A token without TLS is refused.
    """
    found = service.table.texts(
        with_hadoop(options, account, container, secure=secure), account_name=account, container_name=container
    )
    client = found.pop("client", None)
    if client is not None and found:
        raise exclusive("client", min(found))
    endpoint, text = found.pop("endpoint", ""), found.pop("connection_string", "")
    principal = [found.pop(name) for name in _PRINCIPAL if name in found]
    if principal:
        if len(principal) < len(_PRINCIPAL):
            raise refused(
                f"the options {', '.join(_PRINCIPAL)} go together",
                "give all three; for a managed identity none of them: AZURE_CLIENT_ID says which it is",
            )
        if "credential" in found:
            raise exclusive("credential", "client_secret")
        tenant_id, client_id, secret = principal
        found["credential"] = ServicePrincipal(tenant_id, client_id, Secret(secret, "client_secret"))
    if text and found:
        raise exclusive("connection_string", min(found))
    if len(found) > 1:
        raise exclusive(*(name for name in ("account_key", "sas_token", "credential") if name in found))
    access: Access = Token()
    if client is not None:
        endpoint, access = _of_client(client, account, container, service)
    elif text:
        named, access = _of_connection_string(text, account, service)
        endpoint = endpoint or named
    elif "account_key" in found:
        access = SharedKey(account, Secret(found["account_key"], "account_key"))
    elif "sas_token" in found:
        access = SharedAccessSignature(Secret(found["sas_token"], "sas_token"))
    elif principal:
        access = found["credential"]
    elif "credential" in found:
        access = _access_by_object("credential", found["credential"])
    example = f"https://account.{service.name}.core.windows.net"
    url = checked_endpoint(endpoint or f"https://{host}", "endpoint", example)
    if access.needs_tls and not url.startswith("https:"):
        raise refused(
            "a token is never sent without TLS, and the endpoint begins with http:",
            "give account_key or sas_token, or an endpoint that begins with https:",
        )
    return url, access


class _InConnectionString(Secret):
    """Secret that is a part of a connection string given as a reference."""

    def __init__(self, value: str | None, option: str, part: str) -> None:
        super().__init__(value, option)
        self._part = part

    def __reduce__(self) -> tuple[object, ...]:
        return _InConnectionString, (self._value, self.option, self._part)

    def reveal(self) -> str:
        return parse_connection_string(self._value or "").get(self._part, "")


def _access_by_object(option: str, value: object) -> Access:
    """Returns the access for a credential of azure-identity or azure-core, or for that of an SDK client."""
    if callable(getattr(value, "get_token", None)):
        return Token(Held(value, option))
    # AzureSasCredential, AzureNamedKeyCredential, and the SDK's policy for a key.
    signature, named_key = getattr(value, "signature", None), getattr(value, "named_key", None)
    if isinstance(signature, str):
        return SharedAccessSignature(Held(signature, option))
    if named_key is not None:
        return SharedKey(str(named_key.name), Held(str(named_key.key), option))
    account_name, account_key = getattr(value, "account_name", None), getattr(value, "account_key", None)
    if isinstance(account_name, str) and isinstance(account_key, str):
        return SharedKey(account_name, Held(account_key, option))
    raise refused(
        f"the option {option} is a {type(value).__name__}, which has no get_token",
        "give a credential of azure-identity, or account_key or sas_token",
    )


def _of_client(client: Any, account: str, container: str, service: Service) -> tuple[str, Access]:
    """Returns the endpoint and access of an SDK client, blocking or async."""
    kinds = {kind.__name__ for kind in type(client).__mro__}
    if not kinds & {service.service_client, service.container_client}:
        raise refused(
            f"the option client is a {type(client).__name__}",
            f"give a {service.service_client} or a {service.container_client} of {service.package}",
        )
    its_container = getattr(client, service.container_attribute, container)
    if (client.account_name, its_container) != (account, container):
        raise refused(
            f"the option client is for {its_container}@{client.account_name}, and the path for {container}@{account}",
            "give a client of that account and container, or correct the path",
        )
    url, _, query = str(client.url).partition("?")
    endpoint = url.rstrip("/")
    if service.container_client in kinds:
        endpoint = endpoint.removesuffix(f"/{container}")
    if client.credential is not None:
        return endpoint, _access_by_object("client", client.credential)
    if "sig=" not in query:
        raise refused(
            "the option client has no credential", "make it with one, or give account_key, sas_token or credential"
        )
    return endpoint, SharedAccessSignature(Held(query, "client"))


def parse_connection_string(text: str) -> dict[str, str]:
    """Parses a connection string or a reference (a file blocks); names become lower case, errors never quote it."""
    parts: dict[str, str] = {}
    for part in resolved(text, "connection_string").split(";"):
        if part.strip():
            name, equals, content = part.partition("=")
            if not equals:
                raise refused(
                    "the option connection_string is none: it has a part without an equals sign",
                    "copy the string from the account's page Access keys",
                )
            parts[name.strip().lower()] = content.strip()
    return parts


def _of_connection_string(text: str, account: str, service: Service) -> tuple[str, Access]:
    """Returns the endpoint that a connection string names, if any, and the access by its secret."""
    parts = parse_connection_string(text)
    if parts.get("accountname", account) != account:
        raise refused(
            f"the option connection_string is for another account than the path's, {account}",
            "give the string of that account, or correct the path",
        )

    def secret(part: str) -> Secret:
        if is_reference(text):
            return _InConnectionString(text, "connection_string", part)
        return Secret(parts[part], "connection_string")

    access: Access = Token()
    if parts.get("accountkey"):
        access = SharedKey(account, secret("accountkey"))
    elif parts.get("sharedaccesssignature"):
        access = SharedAccessSignature(secret("sharedaccesssignature"))
    suffix = parts.get("endpointsuffix")
    at_suffix = (
        f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.{service.name}.{suffix}" if suffix else ""
    )
    return service.endpoint_in(parts) or at_suffix, access

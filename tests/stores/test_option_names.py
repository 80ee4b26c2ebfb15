"""Storage options by the names that users of other tools know: understood, or refused with ours; never ignored."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import ConfigurationError
from committer.options.storage import OptionTable
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.registry import find_store, open_store, options_of
from committer.stores.s3 import S3Store

DOCS = Path(__file__).parent.parent.parent / "docs" / "stores"
CANARY = "Y2FuYXJ5"
ADLS = StorePath.of("abfss://data@acct.dfs.core.windows.net/table")
S3 = StorePath.of("s3://lake/table")
SUFFIX = "acct.dfs.core.windows.net"


def s3(options: dict[str, Any]) -> dict[str, Any]:
    """What the store took the options for, by its own names."""
    store = open_store(S3, options)
    assert isinstance(store, S3Store)
    given = store._options
    names = ("endpoint_url", "region", "addressing_style", "profile", "server_side_encryption", "kms_key_id")
    found = {name: getattr(given, name) for name in (*names, "storage_class", "checksum_algorithm")}
    secrets = ("access_key_id", "secret_access_key", "session_token")
    found |= {name: getattr(given, name).reveal() for name in secrets if getattr(given, name) is not None}
    return {name: value for name, value in found.items() if value not in (None, "auto")}


KEYS = {"access_key_id": "AKIA", "secret_access_key": CANARY}


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        # delta-rs and Polars, in either case
        (
            {"aws_access_key_id": "AKIA", "aws_secret_access_key": CANARY, "aws_session_token": "t", "aws_region": "r"},
            {**KEYS, "session_token": "t", "region": "r"},
        ),
        (
            {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": "r"},
            {"endpoint_url": "http://h:1", "region": "r"},
        ),
        (
            {"endpoint": "http://h:1", "aws_virtual_hosted_style_request": "false", "bucket": "lake"},
            {"endpoint_url": "http://h:1", "addressing_style": "path"},
        ),
        ({"aws_virtual_hosted_style_request": True}, {"addressing_style": "virtual"}),
        (
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k", "skip_signature": "false"},
            {"server_side_encryption": "aws:kms", "kms_key_id": "k"},
        ),
        # s3fs
        (
            {
                "key": "AKIA",
                "secret": CANARY,
                "token": "t",
                "anon": False,
                "use_ssl": True,
                "client_kwargs": {"endpoint_url": "http://h:1", "region_name": "r"},
                "config_kwargs": {"s3": {"addressing_style": "path"}},
                "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"},
            },
            {
                **KEYS,
                "session_token": "t",
                "endpoint_url": "http://h:1",
                "region": "r",
                "addressing_style": "path",
                "server_side_encryption": "aws:kms",
                "kms_key_id": "k",
            },
        ),
        ({"profile": "p", "requester_pays": False, "config_kwargs": None}, {"profile": "p"}),
        # Hadoop
        (
            {
                "fs.s3a.access.key": "AKIA",
                "spark.hadoop.fs.s3a.secret.key": CANARY,
                "fs.s3a.endpoint": "h:1",
                "fs.s3a.connection.ssl.enabled": "false",
                "fs.s3a.path.style.access": "true",
                "fs.s3a.bucket.lake.endpoint.region": "r",
                "fs.s3a.bucket.other.endpoint.region": "s",
                "fs.s3a.bucket.other.endpoint": "elsewhere",
                "fs.s3a.endpoint.region": "t",
                "fs.s3a.create.storage.class": "intelligent_tiering",
                "fs.s3a.encryption.algorithm": "SSE-KMS",
                "fs.s3a.encryption.key": "alias/lake",
                "fs.s3a.create.checksum.algorithm": "crc32",
                "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            },
            {
                **KEYS,
                "endpoint_url": "http://h:1",
                "addressing_style": "path",
                "region": "r",
                "storage_class": "INTELLIGENT_TIERING",
                "checksum_algorithm": "CRC32",
                "server_side_encryption": "aws:kms",
                "kms_key_id": "alias/lake",
            },
        ),
    ],
)
def test_names_of_s3_that_are_understood(options: dict[str, Any], meant: dict[str, Any]) -> None:
    assert s3(options) == meant


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"anon": True}, "a commit writes"),
        ({"AWS_SKIP_SIGNATURE": "true"}, "a commit writes"),
        ({"use_ssl": False}, "endpoint_url=http://HOST:PORT"),
        ({"endpoint_url": "http://h:1", "allow_http": False}, "forbids the endpoint"),
        ({"client_kwargs": {"verify": False}}, "'verify'"),
        ({"client_kwargs": CANARY}, "no mapping but a str"),
        ({"config_kwargs": {"max_pool_connections": 5}}, "io_concurrency"),
        ({"config_kwargs": {"s3": {"payload_signing_enabled": True}}}, "payload_signing_enabled"),
        ({"key": "AKIA", "aws_access_key_id": "AKIA"}, "key and aws_access_key_id are two names of one"),
        ({"region": "r", "client_kwargs": {"region_name": "s"}}, "two names of one"),
        ({"endpoint_url": "http://a", "fs.s3a.endpoint": "http://b"}, "exclude one another"),
        ({"role_arn": "arn:canary"}, "give profile"),
        ({"aws_s3_allow_unsafe_rename": "true"}, "nothing is renamed on S3"),
        ({"max_retries": 3}, "CommitterConfig"),
        (
            {"bucket": "other"},
            "not the path's, lake; operation: open_store; outcome: unchanged; next step: leave it out",
        ),
        ({"fs.s3a.aws.credentials.provider": "a.b.AnonymousAWSCredentialsProvider"}, "anonymous"),
        ({"fs.s3a.aws.credentials.provider": "a.b.AssumedRoleCredentialProvider"}, "give profile"),
        ({"fs.s3a.endpoint.regoin": "r"}, "did you mean 'fs.s3a.endpoint.region'?"),
        ({"aws_regoin": "r"}, "did you mean 'region'?"),
        ({"nonsense": CANARY}, "the options are endpoint_url, region,"),
        ({"account_key": CANARY}, "knows no option 'account_key'"),
    ],
)
def test_names_of_s3_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(S3, options)
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


def adls(options: dict[str, Any]) -> tuple[str, str]:
    """How the store would authenticate, and where it is."""
    store = open_store(ADLS, options)
    assert isinstance(store, AdlsStore)
    return repr(store._access), store.endpoint


KEY = "SharedKey('acct', Secret(account_key))"
SAS = "SharedAccessSignature(Secret(sas_token))"
PRINCIPAL = "ServicePrincipal('t', 'c', Secret(client_secret))"


@pytest.mark.parametrize(
    ("options", "access"),
    [
        ({"account_name": "acct", "account_key": CANARY, "anon": None}, KEY),
        ({"AZURE_STORAGE_ACCOUNT_KEY": CANARY, "azure_storage_account_name": "acct", "container_name": "data"}, KEY),
        ({"azure_storage_sas_key": "sig=1"}, SAS),
        ({"tenant_id": "t", "client_id": "c", "client_secret": CANARY, "account_name": "acct"}, PRINCIPAL),
        (
            {
                "azure_tenant_id": "t",
                "azure_storage_client_id": "c",
                "azure_client_secret": CANARY,
                "use_emulator": "0",
            },
            PRINCIPAL,
        ),
        ({"anon": False}, "Token(DefaultAzureCredential)"),
        ({f"fs.azure.account.key.{SUFFIX}": CANARY}, KEY),
        ({f"spark.hadoop.fs.azure.account.key.{SUFFIX}": CANARY, "fs.azure.account.key.other.dfs.x": "a"}, KEY),
        ({"fs.azure.account.key": CANARY, "fs.azure.account.auth.type": "SharedKey"}, KEY),
        ({f"fs.azure.sas.fixed.token.data.{SUFFIX}": "sig=1", "fs.azure.sas.fixed.token": "sig=2"}, SAS),
        ({"fs.azure.sas.data.acct.blob.core.windows.net": "sig=1"}, SAS),
        (
            {
                f"fs.azure.account.auth.type.{SUFFIX}": "OAuth",
                f"fs.azure.account.oauth.provider.type.{SUFFIX}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
                f"fs.azure.account.oauth2.client.id.{SUFFIX}": "c",
                f"fs.azure.account.oauth2.client.secret.{SUFFIX}": CANARY,
                f"fs.azure.account.oauth2.client.endpoint.{SUFFIX}": "https://login.microsoftonline.com/t/oauth2/token",
                f"fs.azure.account.key.{SUFFIX}": CANARY,
            },
            PRINCIPAL,
        ),
    ],
)
def test_names_of_adls_that_are_understood(options: dict[str, Any], access: str) -> None:
    assert adls(options) == (access, f"https://{SUFFIX}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"account_name": "other", "account_key": CANARY},
            "account_name is not the path's, acct; operation: open_store; outcome: unchanged; next step: leave it out",
        ),
        ({"container_name": "other", "account_key": CANARY}, "container_name is not the path's, data"),
        ({"tenant_id": "t", "client_id": "c"}, "go together"),
        ({"client_id": "c"}, "AZURE_CLIENT_ID"),
        (
            {"tenant_id": "t", "client_id": "c", "client_secret": CANARY, "account_key": CANARY},
            "give one of them alone",
        ),
        ({"anon": True}, "lets no anonymous client write"),
        ({"bearer_token": CANARY}, "credential="),
        ({"use_emulator": "true"}, "endpoint=http://127.0.0.1:10000/devstoreaccount1"),
        ({"azure_use_azure_cli": "true"}, "az login"),
        ({"msi_endpoint": "http://h"}, "AZURE_CLIENT_ID"),
        ({"account_host": "h"}, "endpoint=https://HOST"),
        ({"fs.azure.account.key.other.dfs.core.windows.net": CANARY}, "is for another account"),
        ({"fs.azure.account.key.nonsense": CANARY}, "is not known"),
        ({"fs.azure.account.kee": CANARY}, "did you mean 'fs.azure.account.key'?"),
        ({"fs.azure.account.auth.type": "Custom"}, "credential="),
        ({"fs.azure.account.oauth.provider.type": "x.MsiTokenProvider"}, "credential="),
        (
            {"fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"},
            "DefaultAzureCredential finds this identity",
        ),
        ({"fs.azure.account.oauth2.client.endpoint": "nonsense"}, "give tenant_id"),
        ({"account_key": CANARY, "fs.azure.account.key": CANARY}, "exclude one another"),
        ({"azure_storage_acount_key": CANARY}, "did you mean 'account_key'?"),
        ({"secret_access_key": CANARY}, "the options are endpoint, account_key"),
    ],
)
def test_names_of_adls_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(ADLS, options)
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


async def test_references_stand_for_what_is_no_secret_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also in a file, which is read off the loop, and under Hadoop's keys."""
    (tmp_path / "endpoint").write_text(" http://h:1\n")
    monkeypatch.setenv("LAKE_REGION", "r")
    for key in ("endpoint_url", "fs.s3a.endpoint"):
        store = await find_store(S3, {key: f"file:{tmp_path}/endpoint", "aws_region": "env:LAKE_REGION"})
        assert isinstance(store, S3Store)
        assert (store._options.endpoint_url, store._options.region) == ("http://h:1", "r")
    with pytest.raises(ConfigurationError, match="aws_region refers to the environment variable NOT_THERE"):
        await find_store(S3, {"aws_region": "env:NOT_THERE"})


async def test_a_connection_string_in_a_file(tmp_path: Path) -> None:
    text = f"AccountName=acct;AccountKey={CANARY};EndpointSuffix=core.chinacloudapi.cn"
    (tmp_path / "connection").write_text(f"{text}\n")
    store = await find_store(ADLS, {"connection_string": f"file:{tmp_path}/connection"})
    assert store.endpoint == "https://acct.dfs.core.chinacloudapi.cn"
    assert CANARY.encode() not in pickle.dumps(store)


def test_a_service_principal_travels_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"tenant_id": "t", "client_id": "c"}
    for secret, travels in ((CANARY, False), ("env:LAKE_SECRET", True)):
        pickled = pickle.dumps(open_store(ADLS, {**given, "client_secret": secret}))
        assert CANARY.encode() not in pickled
        assert (b"LAKE_SECRET" in pickled) is travels


def test_what_hadoop_s_configuration_says_of_a_store() -> None:
    """The rest of a configuration is not about reaching it."""
    configuration = {
        "fs.s3a.endpoint": "h",
        "spark.hadoop.fs.s3a.bucket.my.bucket.access.key": "AKIA",
        "fs.s3a.connection.maximum": "100",
        "fs.azure.account.key": CANARY,
        "fs.defaultFS": "hdfs://nn",
    }
    table = options_of("s3a")
    assert table is not None
    assert set(table.of_hadoop(configuration)) == {"fs.s3a.endpoint", "spark.hadoop.fs.s3a.bucket.my.bucket.access.key"}
    assert options_of("file") is None


def markdown_table(table: OptionTable) -> str:
    """Renders a store's options as Markdown, for its documentation page."""
    rows = ["| option | what it is | other tools' names | Hadoop's key |", "|---|---|---|---|"]
    for option in table.options:
        others, hadoop = (", ".join(f"`{name}`" for name in names) for names in (option.others, option.hadoop))
        kind = " (secret)" if option.secret else " (Python only)" if option.instance else ""
        rows.append(f"| `{option.name}`{kind} | {option.meaning} | {others} | {hadoop} |")
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("scheme", "page"),
    [("abfss", "adls.md"), ("az", "azure-blob.md"), ("gs", "gcs.md"), ("hdfs", "hdfs.md"), ("s3", "s3.md")],
)
def test_the_documentation_shows_the_table(scheme: str, page: str) -> None:
    table = options_of(scheme)
    assert table is not None
    assert markdown_table(table) in (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["abfss", "az", "gs", "s3"])
def test_a_switch_with_sparks_prefix_is_refused_as_the_one_without(scheme: str) -> None:
    table = options_of(scheme)
    assert table is not None
    for switch, advice in table.switches.items():
        assert table.named({f"spark.hadoop.{switch}": "false"}) == {}
        with pytest.raises(ConfigurationError) as caught:
            table.named({f"spark.hadoop.{switch}": "true"})
        assert caught.value.next_step == advice


@pytest.mark.parametrize("scheme", ["abfss", "az", "gs", "hdfs", "s3"])
def test_no_name_means_two_things(scheme: str) -> None:
    table = options_of(scheme)
    assert table is not None
    names = [*table.names, *(name for option in table.options for name in (*option.others, *option.hadoop))]
    names += [*table.advice, *table.switches]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize(
    "uri", ["s3://b/x", "gs://b/x", str(ADLS), "az://c@a.blob.core.windows.net/x", "/x", "hdfs://h/x"]
)
@pytest.mark.parametrize(
    "secret",
    ["AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "sv=2024-05-04&sig=abc", "5f4dcc3b5aa765d61d8327deb882cf99", "eyJhbGciOi.eyJzdWIi.c2ln"],
)  # fmt: skip
async def test_a_secret_in_the_place_of_a_name_is_not_repeated(uri: str, secret: str) -> None:
    for given in ({"storage_options": {secret: "x"}}, {"config": {secret: "x"}}):
        with pytest.raises(ConfigurationError, match=r"characters, not repeated") as caught:
            await committer.list_jobs(uri, **given)  # type: ignore[arg-type]
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["account_name", "accessKeyId", "AWS_REGION", "fs.s3a.acces.key", "verify-ssl", "use_http2"]
)
async def test_a_name_that_is_not_known_is_repeated(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}'"):
        await committer.list_jobs("hdfs://h/x", storage_options={name: "x"})

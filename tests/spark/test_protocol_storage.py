"""How the job side of Spark's commit protocol is told to reach a store, by the session's Hadoop keys and its own."""

from __future__ import annotations

import pytest

from committer.errors import ConfigurationError
from committer.paths import StorePath
from committer.spark.job_side import EndRequest, SetupRequest
from committer.spark.session_settings import checked, storage_options_of
from committer.stores.adls import AdlsStore
from committer.stores.s3 import S3Store

HOST = "acct.dfs.core.windows.net"
ABFSS = StorePath.of(f"abfss://data@{HOST}/t")
ABFS = StorePath.of(f"abfs://data@{HOST}/t")
S3A = StorePath.of("s3a://lake/t")
CANARY = "Y2FuYXJ5"
KEY = {f"fs.azure.account.key.{HOST}": CANARY}
PRINCIPAL = {
    "fs.azure.account.oauth2.client.id": "me",
    "fs.azure.account.oauth2.client.secret": CANARY,
    "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
}
PROVIDER = "fs.azure.account.oauth.provider.type"
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."


def test_the_session_s_keys_of_this_place_count() -> None:
    session = {
        **KEY,
        "fs.azure.account.key.other.dfs.core.windows.net": "another",
        "fs.azure.io.rate.limit": "7",
        "fs.s3a.access.key": "another",
        "fs.defaultFS": "hdfs://a",
    }
    assert storage_options_of(ABFSS, session, {}) == KEY


def test_hdfs_takes_the_keys_of_its_client() -> None:
    session = {"dfs.replication": "2", "fs.defaultFS": "hdfs://a", "fs.azure.account.key": CANARY}
    found = storage_options_of(StorePath.of("hdfs://a:1/t"), session, {})
    assert found == {"dfs.replication": "2", "fs.defaultFS": "hdfs://a"}


def test_what_configure_was_given_is_for_the_store_that_has_it() -> None:
    credential = object()
    given = checked({"credential": credential})
    assert storage_options_of(ABFSS, KEY, {}, given) == {"credential": credential}
    assert storage_options_of(S3A, {"fs.s3a.access.key": CANARY}, {}, given) == {"fs.s3a.access.key": CANARY}
    assert storage_options_of(StorePath.of("/data/t"), KEY, {}, given) == {}
    assert checked(None) is None
    for wrong in {"credentail": credential}, {"credential": credential, "region": "r"}:
        with pytest.raises(ConfigurationError, match=r"no store has all of the storage options .*options") as caught:
            checked(wrong)
        assert CANARY not in str(caught.value)


def test_a_local_disk_takes_nothing() -> None:
    assert storage_options_of(StorePath.of("/data/t"), {**KEY, "dfs.replication": "2"}, {}) == {}


@pytest.mark.parametrize("identity", ["MsiTokenProvider", f"{OAUTH}WorkloadIdentityTokenProvider"])
def test_an_identity_of_the_machine_is_python_s_to_find(identity: str) -> None:
    session = {"fs.azure.account.auth.type": "OAuth", PROVIDER: identity, **PRINCIPAL, **KEY}
    assert storage_options_of(ABFSS, session, {}) == {}


def test_a_service_principal_is_the_session_s() -> None:
    session = {"fs.azure.account.auth.type": "OAuth", PROVIDER: f"{OAUTH}ClientCredsTokenProvider", **PRINCIPAL}
    found = storage_options_of(ABFSS, {**session, **KEY}, {})
    assert found == {**session, **KEY}
    assert "ServicePrincipal" in repr(AdlsStore.open_for(ABFSS, found))


@pytest.mark.parametrize("own", [{"committer.storage.sas_token": "env:HOME"}, {}])
def test_a_credential_for_python_replaces_the_session_s(own: dict[str, str]) -> None:
    session = {**KEY, **PRINCIPAL, "fs.azure.account.auth.type": "SharedKey", "fs.azure.abfs.endpoint": "h:1"}
    given = {} if own else {"credential": object()}
    found = storage_options_of(ABFSS, session, own, given)
    assert found.keys() == {"fs.azure.abfs.endpoint", "sas_token" if own else "credential"}


def test_what_this_process_was_told_wins() -> None:
    session = {"fs.s3a.endpoint": "http://session:1", "fs.s3a.endpoint.region": "session"}
    found = storage_options_of(S3A, session, {"committer.storage.region": "own"}, {"endpoint_url": "http://given:1"})
    assert found == {"endpoint_url": "http://given:1", "region": "own"}


def test_a_bucket_s_keys_win_over_the_general_ones() -> None:
    session = {
        "fs.s3a.endpoint": "http://all:1",
        "fs.s3a.bucket.lake.endpoint": "http://lake:1",
        "fs.s3a.bucket.other.endpoint": "http://other:1",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.access.key": "id",
        "fs.s3a.secret.key": CANARY,
    }
    found = storage_options_of(S3A, session, {})
    assert "fs.s3a.bucket.other.endpoint" not in found
    store = S3Store.open_for(S3A, found)
    assert "http://lake:1" in repr(store)
    assert CANARY not in repr(store)


@pytest.mark.parametrize(
    ("place", "https", "endpoint"),
    [
        (ABFS, "false", "http://127.0.0.1:9/acct"),
        (ABFS, "true", "https://127.0.0.1:9/acct"),
        (ABFSS, "false", "https://127.0.0.1:9/acct"),
    ],
)
def test_hadoop_s_endpoint_of_an_emulator(place: StorePath, https: str, endpoint: str) -> None:
    session = {**KEY, "fs.azure.abfs.endpoint": "127.0.0.1:9", "fs.azure.always.use.https": https}
    store = AdlsStore.open_for(place, storage_options_of(place, session, {}))
    assert f"{endpoint}," in repr(store)


def test_an_endpoint_without_a_port_is_none_for_hadoop() -> None:
    session = {**KEY, "fs.azure.abfs.endpoint": "dfs.core.windows.net"}
    assert f"https://{HOST}," in repr(AdlsStore.open_for(ABFSS, session))


def test_secrets_where_others_read_them_and_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.hadoop\.committer\.storage\.account_key must say") as caught:
        storage_options_of(ABFSS, {}, {"committer.storage.account_key": CANARY})
    assert CANARY not in str(caught.value)
    with pytest.raises(ConfigurationError, match="knows no option 'nonsense'"):
        storage_options_of(ABFSS, {}, {"committer.storage.nonsense": "1"})


def test_requests_show_no_secret() -> None:
    asked = SetupRequest("j", str(ABFSS), False, (), {}, "", storage=KEY)
    end = EndRequest("{}", "", storage=KEY)
    assert CANARY not in f"{asked!r} {asked} {end!r} {end}"

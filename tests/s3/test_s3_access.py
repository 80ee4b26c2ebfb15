"""Authentication to S3: signatures, options, keys that are found; and that no secret shows anywhere."""

from __future__ import annotations

import logging
import pickle
import socket
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import boto3
import botocore.session
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

import committer
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    StorePermissionError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.options.references import Secret
from committer.paths import StorePath
from committer.stores.http import redact
from committer.stores.registry import open_store
from committer.stores.s3 import S3Store
from committer.stores.s3.access import NOTHING_SHA256, GivenKeys, S3Access, sha256_of
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.keys import TOKEN, giving_keys, works
from tests.s3.proxy import Trouble, proxy_to, refusal
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server

CANARY = "the/canary+of=all+secrets"


# --- Signatures -----------------------------------------------------------------------------------------------------

_WORDS = st.text("abcXYZ019-_.~/=+:@ %é日\"'", min_size=1, max_size=12)


@given(
    key=_WORDS,
    query=st.dictionaries(st.sampled_from(["partNumber", "prefix", "uploads", "uploadId"]), _WORDS, max_size=4),
    host=st.sampled_from(["bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:8333"]),
    token=st.sampled_from([None, TOKEN]),
    body=st.binary(max_size=40),
    conditional=st.booleans(),
)
def test_requests_are_signed_as_botocore_signs_them(
    key: str, query: dict[str, str], host: str, token: str | None, body: bytes, conditional: bool
) -> None:
    access = S3Access(GivenKeys(), "eu-west-1")
    access._keys = (KEY_ID, CANARY, token or "")
    path = f"/{quote(key, safe='/~')}"
    parameters = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    headers = {"content-type": "application/xml", "x-amz-meta-committer-attempt": "job/1/0/ab"}
    if conditional:
        headers["if-none-match"] = "*"
    sent = access.sign("POST", host, path, parameters, dict(headers), sha256_of(body))

    request = AWSRequest("POST", f"http://{host}{path}?{parameters}", data=body, headers={**headers, "host": host})
    official = S3SigV4Auth(Credentials(KEY_ID, CANARY, token), "s3", "eu-west-1")
    request.context["timestamp"] = sent["x-amz-date"]
    official._modify_request_before_signing(request)
    text = official.string_to_sign(request, official.canonical_request(request))
    official._inject_signature_to_request(request, official.signature(text, request))
    assert sent["authorization"] == request.headers["Authorization"]
    assert sent["x-amz-content-sha256"] == request.headers["X-Amz-Content-SHA256"]
    assert sent.get("x-amz-security-token") == request.headers.get("X-Amz-Security-Token")


def test_a_signature_s_key_is_made_anew_when_keys_or_region_change() -> None:
    access = S3Access(GivenKeys(), "eu-west-1")

    def signature() -> str:
        return access.sign("GET", "h", "/", "", {}, NOTHING_SHA256)["authorization"].rpartition("=")[2]

    access._keys = (KEY_ID, CANARY, "")
    first = signature()
    access.moved("us-west-2")
    second = signature()
    access._keys, access._scope = (KEY_ID, "another", ""), ""
    assert len({first, second, signature()}) == 3


# --- Options --------------------------------------------------------------------------------------------------------


async def test_keys_as_text_as_references_and_in_files(
    server: Server, root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    for key_id, key in ((KEY_ID, KEY), (f"env:{KEY_ID_IS_IN}", f"env:{KEY_IS_IN}"), (KEY_ID, f"file:{tmp_path}/key")):
        await works(S3Store.open_for(root, options_for(server, access_key_id=key_id, secret_access_key=key)), root)


async def test_keys_of_the_environment(server: Server, root: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{server.url}/")
    store = S3Store.open_for(root, {})
    await works(pickle.loads(pickle.dumps(store)), root)
    await works(store, root)


async def test_keys_and_region_of_a_profile(
    server: Server, root: StorePath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile lake]\nregion = eu-south-2\n")
    (tmp_path / "credentials").write_text(f"[lake]\naws_access_key_id={KEY_ID}\naws_secret_access_key={KEY}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    async with proxy_to(server.url) as proxy:
        await works(S3Store.open_for(root, {"profile": "lake", "endpoint_url": proxy.url}), root)
        assert all("/eu-south-2/s3/" in seen.headers["authorization"] for seen in proxy.seen)
        with pytest.raises(StorePermissionError, match="ProfileNotFound"):
            await works(S3Store.open_for(root, {"profile": "none", "endpoint_url": proxy.url}), root)


async def test_no_keys_anywhere(server: Server, root: StorePath) -> None:
    store = S3Store.open_for(root, {"endpoint_url": server.url})
    with pytest.raises(StorePermissionError, match="finds no keys") as caught:
        await store.put(root / "file", b"1")
    assert "access_key_id" in caught.value.next_step


async def test_without_botocore(server: Server, root: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are given need nothing but this library."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    store = S3Store.open_for(root, {"endpoint_url": server.url})
    with pytest.raises(UnsupportedError) as caught:
        await store.put(root / "file", b"1")
    assert "lake-committer[s3]" in caught.value.next_step
    without_region = {name: value for name, value in options_for(server).items() if name != "region"}
    await works(S3Store.open_for(root, without_region), root)


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, "https://s3.amazonaws.com/bucket"),
        ({"fs.s3a.endpoint": "minio:9000"}, "https://minio:9000/bucket"),
        ({"fs.s3a.endpoint": "http://minio:9000/"}, "http://minio:9000/bucket"),
        ({"endpoint_url": "http://minio:9000/base/"}, "http://minio:9000/base/bucket"),
    ],
)
def test_endpoints(options: dict[str, object], endpoint: str) -> None:
    assert S3Store.open_for(StorePath.of("s3://bucket/x"), options).endpoint == endpoint


def test_the_environment_s_endpoint_can_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    assert S3Store("s3", "bucket").endpoint == "http://general:1/bucket"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special:1")
    assert S3Store("s3", "bucket").endpoint == "http://special:1/bucket"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert S3Store("s3", "bucket").endpoint == "https://s3.amazonaws.com/bucket"


@pytest.mark.parametrize(
    ("uri", "options", "origin", "prefix"),
    [
        ("s3://lake/x", {}, "https://lake.s3.eu-west-1.amazonaws.com", "/"),
        ("s3://lake.2026/x", {}, "https://s3.eu-west-1.amazonaws.com", "/lake.2026/"),
        ("s3://lake/x", {"addressing_style": "path"}, "https://s3.eu-west-1.amazonaws.com", "/lake/"),
        ("s3://lake/x", {"region": "cn-north-1"}, "https://lake.s3.cn-north-1.amazonaws.com.cn", "/"),
        ("s3://lake/x", {"endpoint_url": "https://minio:9000"}, "https://minio:9000", "/lake/"),
        (
            "s3://lake/x",
            {"endpoint_url": "https://obs.example.com", "addressing_style": "virtual"},
            "https://lake.obs.example.com",
            "/",
        ),
    ],
)
def test_where_requests_go(uri: str, options: dict[str, object], origin: str, prefix: str) -> None:
    store = S3Store.open_for(StorePath.of(uri), {"region": "eu-west-1", **options})
    assert store._wire._find_place() == (origin, origin.removeprefix("https://"), prefix)


class _Here(AbstractResolver):
    """Every name is this machine's."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        flags = socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=flags)]

    async def close(self) -> None:
        pass


async def test_the_bucket_in_the_host_s_name(moto_server: Server, root: StorePath) -> None:
    """As on AWS; the session is the user's own and stays open."""
    endpoint = f"http://s3.us-east-1.amazonaws.com:{moto_server.url.rpartition(':')[2]}"
    connector = aiohttp.TCPConnector(resolver=_Here())
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        options = options_for(moto_server, endpoint_url=endpoint, addressing_style="virtual", http_session=session)
        await works(S3Store.open_for(root, options), root)
        store = S3Store.open_for(root, options)
        await store.put(root / "virtual=1/file", b"1")
        assert (
            moto_server.client.get_object(Bucket=BUCKET, Key=f"{root.path[1:]}/virtual=1/file")["Body"].read() == b"1"
        )
        assert not session.closed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"access_key_id": KEY_ID}, "go together"),
        ({"session_token": TOKEN}, "goes with"),
        ({"access_key_id": KEY_ID, "secret_access_key": CANARY, "profile": "x"}, "exclude"),
        ({"access_key_id": KEY_ID, "secret_access_key": 7}, "secret_access_key is no text"),
        ({"region": ""}, "region is no text, or empty"),
        ({"region": "eu west"}, "region is none"),
        ({"addressing_style": "host"}, "must be one of auto, path, virtual"),
        ({"endpoint_url": "minio:9000"}, "endpoint_url is no URL"),
        ({"endpoint_url": f"http://u:{CANARY}@minio"}, "endpoint_url is no URL"),
        ({"checksum_algorithm": "CRC32C"}, "must be one of CRC32, SHA1, SHA256"),
        ({"kms_key_id": "k", "server_side_encryption": "AES256"}, "goes with server_side_encryption"),
        ({"acces_key_id": KEY_ID}, "did you mean 'access_key_id'"),
        ({"fs.s3a.acces.key": CANARY}, "knows no option 'fs.s3a.acces.key'"),
        ({"fs.s3a.endpoint": "http://a", "endpoint_url": "http://b"}, "exclude"),
        ({"fs.s3a.path.style.access": "yes"}, "must be true or false"),
        ({"fs.s3a.encryption.algorithm": "SSE-C"}, "key of the client's"),
        ({"session": boto3.Session(), "profile": "p"}, "session and profile exclude"),
        ({"session": boto3.Session(), "key": KEY_ID, "secret": CANARY}, "session and access_key_id exclude"),
        ({"session": "canary"}, "is a builtins.str"),
        ({"session": boto3}, "http_session"),
    ],
)
def test_options_that_cannot_be_honoured(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(StorePath.of("s3://bucket/x"), options)
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "error", "said"),
    [
        ("s3:///x", InvalidPathError, "names no bucket"),
        ("s3://user@bucket/x", InvalidPathError, "names no bucket"),
        ("s3a://bucket:80/x", InvalidPathError, "names no bucket"),
        ("s3://lake--use1-az4--x-s3/x", UnsupportedError, "directory buckets"),
    ],
)
def test_what_is_no_bucket(uri: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        open_store(StorePath.of(uri))


# --- Secrets --------------------------------------------------------------------------------------------------------


async def test_no_secret_shows(root: StorePath, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = options_for(server, access_key_id=KEY_ID, secret_access_key=CANARY, session_token=TOKEN)
    store = S3Store.open_for(root, options)
    texts = [repr(store), str(store.__reduce__()), repr(store._options), repr(store._access)]
    with pytest.raises(StorePermissionError) as refused:
        await store.put(root / "file", b"1")
    nowhere = S3Store.open_for(root, {**options, "endpoint_url": "http://127.0.0.1:1"})
    with pytest.raises(StoreUnavailableError) as unreachable:
        await nowhere.put(root / "file", b"1")
    copy = pickle.loads(pickle.dumps(store))
    with pytest.raises(ConfigurationError, match="never leaves its process") as travelled:
        await copy.put(root / "file", b"1")
    for error in (refused.value, unreachable.value, travelled.value):
        texts += [str(error), repr(error), "".join(traceback.format_exception(error)), str(pickle.dumps(error))]
    texts += [str(pickle.dumps(store)), str(pickle.dumps(store._options)), caplog.text]
    signature = store._access.sign("GET", "h", "/", "", {}, NOTHING_SHA256)["authorization"].rpartition("=")[2]
    for text in texts:
        for secret in (CANARY, TOKEN, signature):
            assert secret not in text
    for one in (store, nowhere, copy):
        await one.close()


async def test_keys_that_are_found_show_nowhere(
    server: Server,
    root: StorePath,
    monkeypatch: pytest.MonkeyPatch,
    tokens: list[Trouble],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not even in botocore's own debug log."""
    caplog.set_level(logging.DEBUG)
    async with giving_keys(3600) as (url, given), proxy_to(server.url) as proxy:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        store = S3Store.open_for(root, {"endpoint_url": proxy.url, "region": "us-east-1"})
        proxy.troubles = list(tokens)
        await store.put(root / "file", b"1")
        proxy.troubles = [Trouble("answer", status=403, body=refusal("AccessDenied"))]
        with pytest.raises(StorePermissionError) as caught:
            await store.put(root / "file", b"1")
        texts = [caplog.text, repr(store), str(pickle.dumps(store)), "".join(traceback.format_exception(caught.value))]
        assert given
        for text in texts:
            assert TOKEN not in text
            assert KEY not in text
        await store.close()


async def test_references_travel(server: Server, root: StorePath) -> None:
    store = S3Store.open_for(root, options_for(server))
    pickled = pickle.dumps(store)
    assert KEY.encode() not in pickled
    assert KEY_IS_IN.encode() in pickled
    await works(pickle.loads(pickled), root)


async def test_a_wrong_key_is_told(server: Server, root: StorePath) -> None:
    store = S3Store.open_for(root, options_for(server, secret_access_key="wrong"))
    with pytest.raises(StorePermissionError, match="SignatureDoesNotMatch") as caught:
        await store.put(root / "file", b"1")
    assert "check access_key_id, secret_access_key" in caught.value.next_step
    assert "s3:" not in caught.value.next_step, "no right helps where the key is wrong"
    await store.close()
    await works(S3Store.open_for(root, options_for(server)), root)


def test_a_key_that_would_end_its_header_is_refused() -> None:
    secret = Secret(f"{CANARY}\r\nx-evil: 1", "b")
    access = S3Access(GivenKeys(access_key_id=Secret(KEY_ID, "a"), secret_access_key=secret), None)
    with pytest.raises(ConfigurationError) as caught:
        access._fetch()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: AWS4-HMAC-SHA256 Credential={CANARY}, SignedHeaders=host, Signature={CANARY}",
        f"Credential={CANARY}, SignedHeaders=host, Signature={CANARY}",
        f"https://h/?X-Amz-Credential={CANARY}&X-Amz-Security-Token={CANARY}&X-Amz-Signature={CANARY}",
        f"{{'x-amz-security-token': '{CANARY}'}}",
        f"aws_secret_access_key = {CANARY}",
    ],
)
def test_what_is_redacted(text: str) -> None:
    assert CANARY not in redact(text)


# --- Committers -----------------------------------------------------------------------------------------------------


async def test_manifest_is_refused_and_magic_is_named(server: Server) -> None:
    options: dict[str, Any] = options_for(server)
    with pytest.raises(UnsupportedError) as caught:
        await committer.open_job(f"s3://{BUCKET}/refused", committer="manifest", storage_options=options)
    text = str(caught.value)
    for said in ("'manifest'", "rename", "leave `committer` out"):
        assert said in text
    assert caught.value.outcome == "unchanged"


# --- Sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boto3", "botocore"])
async def test_a_session_gives_keys_and_region(
    kind: str, server: Server, root: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any
    if kind == "boto3":
        session = boto3.Session(KEY_ID, KEY, region_name="us-east-1")
    else:
        session = botocore.session.Session()
        session.set_credentials(KEY_ID, KEY)
        session.set_config_variable("region", "us-east-1")
    options = {"endpoint_url": server.url, "addressing_style": "path", "session": session}
    async with committer.open_job(root, storage_options=options) as job:
        async with job.task_attempt(0) as task, task.open("a=1/file") as file:
            await file.write(b"1")
    assert server.client.get_object(Bucket=BUCKET, Key=f"{root.path[1:]}/a=1/file")["Body"].read() == b"1"
    store = S3Store.open_for(root, options)
    assert store._access.region == ""
    await works(store, root)
    assert store._access.region == "us-east-1"
    pickled = pickle.dumps(store)
    assert KEY.encode() not in pickled
    copy = pickle.loads(pickled)
    with pytest.raises(ConfigurationError, match="option session was given as an object, which never leaves") as caught:
        await copy.put(root / "file", b"1")
    assert "storage_options in each process" in caught.value.next_step
    assert KEY not in repr(store) + repr(copy) + str(caught.value)
    await copy.close()

"""Keys for S3 that end while they are used, and buckets that turn out to stand in another region."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from committer.errors import ConfigurationError, StorePermissionError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.stores.s3.access import GivenKeys, S3Access
from tests.s3.keys import TOKEN, giving_keys, works
from tests.s3.proxy import Proxy, Trouble, refusal


@asynccontextmanager
async def asking_for_keys(
    lifetime_s: float, proxy: Proxy, root: StorePath, monkeypatch: pytest.MonkeyPatch, tokens: list[Trouble]
) -> AsyncIterator[tuple[S3Store, list[str]]]:
    """A store whose keys are given by a server; and the tokens it was given."""
    async with giving_keys(lifetime_s) as (url, given):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        store = S3Store.open_for(root, {"endpoint_url": proxy.url, "region": "us-east-1"})
        proxy.troubles = list(tokens)
        yield store, given
        await store.close()


async def test_keys_that_end_are_asked_for_anew(
    proxy: Proxy, root: StorePath, monkeypatch: pytest.MonkeyPatch, tokens: list[Trouble]
) -> None:
    async with asking_for_keys(3600, proxy, root, monkeypatch, tokens) as (store, given):
        await asyncio.gather(*(store.put(root / f"{number}", b"1") for number in range(5)))
        assert len(given) == 1, "many requests ask once"
        # The service takes the token for ended, whatever its date says.
        store._access._fetched_at -= 10
        proxy.troubles = [Trouble("answer", status=400, body=refusal("ExpiredToken")), *tokens]
        await store.put(root / "file", b"1")
        sent = [seen.headers["x-amz-security-token"] for seen in proxy.seen]
        assert sent[-2:] == [f"{TOKEN}0", f"{TOKEN}1"]
        # New keys that are refused, too, are not asked for again and again.
        proxy.troubles = [Trouble("answer", status=400, body=refusal("ExpiredToken"), times=9)]
        with pytest.raises(StorePermissionError):
            await store.put(root / "file", b"1")
        assert len(given) == 2


async def test_keys_that_end_under_many_requests(
    proxy: Proxy, root: StorePath, monkeypatch: pytest.MonkeyPatch, tokens: list[Trouble]
) -> None:
    """Whose refusal arrives after another's, when new keys are there already, is sent again with those."""
    async with asking_for_keys(3600, proxy, root, monkeypatch, tokens) as (store, given):
        await store.put(root / "file", b"1")
        store._access._fetched_at -= 10
        ended = {"status": 400, "body": refusal("ExpiredToken"), "method": "PUT"}
        slow = Trouble("answer", **ended, query="late", delay_s=0.5)  # type: ignore[arg-type]
        proxy.troubles = [slow, Trouble("answer", **ended), *tokens]  # type: ignore[arg-type]
        late = asyncio.create_task(store._wire.done("put", "PUT", root / "late", (("late", ""),), data=b"1"))
        await asyncio.sleep(0.1)
        await store.put(root / "early", b"1")
        await late
        sent = [seen.headers["x-amz-security-token"] for seen in proxy.seen]
        assert sent == [f"{TOKEN}{number}" for number in (0, 0, 0, 1, 1)]
        assert len(given) == 2


async def test_keys_refused_while_new_ones_are_asked_for_still_end(
    monkeypatch: pytest.MonkeyPatch, root: StorePath
) -> None:
    """A refusal arrives while a thread asks for new keys: those must not be taken for keys without an end."""
    async with giving_keys(3600) as (url, _given):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        access = S3Access(GivenKeys(), "us-east-1")
        await access.prepare()
        asked, may_answer = threading.Event(), threading.Event()
        get = access._chain.get_frozen_credentials

        def slowly() -> object:
            asked.set()
            may_answer.wait(10)
            return get()

        monkeypatch.setattr(access._chain, "get_frozen_credentials", slowly)
        access._fresh_until = -1.0
        access._fetched_at -= 10
        asking = asyncio.create_task(access.prepare())
        await asyncio.to_thread(asked.wait, 10)
        access.refused()
        may_answer.set()
        await asking
        assert access.ready
        assert access._fresh_until < float("inf")


async def test_keys_near_their_end_are_asked_for_before_it(
    proxy: Proxy, root: StorePath, monkeypatch: pytest.MonkeyPatch, tokens: list[Trouble]
) -> None:
    async with asking_for_keys(60, proxy, root, monkeypatch, tokens) as (store, given):
        await store.put(root / "file", b"1")
        before = len(given)
        store._access._fresh_until = -1.0
        await store.put(root / "file", b"1")
        assert len(given) > before


async def test_given_keys_are_not_asked_for_again(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    proxy.troubles = [Trouble("answer", status=403, body=refusal("InvalidAccessKeyId"), times=9)]
    with pytest.raises(StorePermissionError):
        await proxied.put(root / "file", b"1")
    assert len(proxy.seen) == 1


async def test_a_bucket_in_another_region_is_followed_once(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    elsewhere = {"x-amz-bucket-region": "eu-west-3"}
    proxy.troubles = [Trouble("answer", status=301, headers=elsewhere, body=refusal("PermanentRedirect"))]
    await works(proxied, root)
    regions = [seen.headers["authorization"].split("/")[2] for seen in proxy.seen]
    assert regions[:2] == ["us-east-1", "eu-west-3"]
    assert set(regions[2:]) == {"eu-west-3"}
    proxy.troubles = [Trouble("answer", status=301, headers=elsewhere, body=refusal("PermanentRedirect"))]
    with pytest.raises(ConfigurationError, match="another region"):
        await proxied.put(root / "file", b"1")


@pytest.mark.parametrize(
    ("location", "says", "advises"),
    [
        ("https://lake.internal:9000/b/k?sig=S3CRET", "redirects to https://lake.internal:9000,", "endpoint_url=https://lake.internal:9000"),
        ("https://{bucket}.lake.internal/k", "redirects to https://lake.internal,", "endpoint_url=https://lake.internal"),
        ("/login?sig=S3CRET", "does not say where to", "endpoint_url"),
        ("https://user:S3CRET@lake.internal/", "does not say where to", "endpoint_url"),
    ],
)  # fmt: skip
async def test_a_redirect_says_where_to(
    proxied: S3Store, proxy: Proxy, root: StorePath, location: str, says: str, advises: str
) -> None:
    there = {"Location": location.format(bucket=root.authority)}
    proxy.troubles = [Trouble("answer", status=301, headers=there, body="<html>moved</html>")]
    with pytest.raises(ConfigurationError, match=says) as caught:
        await proxied.put(root / "file", b"1")
    assert advises in caught.value.next_step
    assert "region" not in str(caught.value)
    assert "S3CRET" not in str(caught.value)


async def test_many_requests_follow_a_bucket_at_once(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    """All were signed for the first region; the first refusal to arrive is not the only one to learn from."""
    elsewhere = {"x-amz-bucket-region": "eu-west-3"}
    proxy.troubles = [Trouble("answer", status=301, headers=elsewhere, body=refusal("PermanentRedirect"), times=5)]
    await asyncio.gather(*(proxied.put(root / f"{number}", b"1") for number in range(5)))
    assert proxy.count("PUT") == 10


async def test_a_region_is_read_from_the_refusal(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    """AWS names it in the body where the signature was for another; what is no region's name is not followed."""
    for region, sent in (("eu-west-3", 2), ("evil.example/#", 1)):
        body = f"<Error><Code>AuthorizationHeaderMalformed</Code><Region>{region}</Region></Error>"
        proxy.seen.clear()
        proxy.troubles = [Trouble("answer", status=400, body=body)]
        if sent == 2:
            await proxied.put(root / "file", b"1")
        else:
            with pytest.raises(ConfigurationError, match="another region"):
                await proxied.put(root / "file", b"1")
        assert len(proxy.seen) == sent

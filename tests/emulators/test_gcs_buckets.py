"""Buckets: layout, soft delete, retention, holds, who may do what, and the tokens that say who one is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from gcloud.aio.auth import Token
from google.cloud.storage import Bucket

from committer_testing.emulators.gcs import GcsEmulator, Settings, serve
from tests.stores.gcs_bucket import service_file, user_file

from .google_clients import Wire, google_client, held, names, off_loop, refused, written


async def test_buckets_are_made_found_and_deleted(gcs: GcsEmulator) -> None:
    client = google_client(gcs)
    await off_loop(lambda: client.create_bucket("more", retry=None))

    assert await off_loop(lambda: [bucket.name for bucket in client.list_buckets(retry=None)]) == ["more"]
    with refused(409, "conflict"):
        await off_loop(lambda: client.create_bucket("more", retry=None))
    await written(client.bucket("more"), "a")
    with refused(409, "conflict"):
        await off_loop(lambda: client.bucket("more").delete(retry=None))
    await off_loop(lambda: client.bucket("more").blob("a").delete(retry=None))
    await off_loop(lambda: client.bucket("more").delete(retry=None))
    with refused(404, "notFound"):
        await off_loop(lambda: client.get_bucket("more", retry=None))


@pytest.mark.parametrize("name", ["a", "Upper", "a" * 64, "two..dots", "-a-b", "a b"])
async def test_names_of_buckets_are_the_services(wire: Wire, name: str) -> None:
    assert (await wire("POST", "/storage/v1/b?project=p", {"name": name})).reason == "invalid"


@pytest.mark.parametrize("hierarchical", [False, True])
async def test_the_layout_tells_a_hierarchical_namespace(hierarchical: bool) -> None:
    async with serve(Settings(hierarchical=hierarchical)) as emulator, aiohttp.ClientSession() as session:
        emulator.make_bucket("data")
        wire = Wire(emulator, session)
        layout = (await wire("GET", "/storage/v1/b/data/storageLayout")).json
        assert layout["hierarchicalNamespace"] == {"enabled": hierarchical}
        assert (await wire.insert("a")).status == 200
        assert (await wire("POST", "/storage/v1/b/data/o/a/moveTo/o/b")).status == 200
        asked = {"name": "other", "hierarchicalNamespace": {"enabled": True}}
        made = (await wire("POST", "/storage/v1/b?project=p", asked)).json
        assert made["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"] is True
        layout = (await wire("GET", "/storage/v1/b/other/storageLayout")).json
        assert layout["hierarchicalNamespace"]["enabled"] is True
        versioned = await wire("PATCH", "/storage/v1/b/data", {"versioning": {"enabled": True}})
        assert versioned.reason == "notImplemented"


# --- Soft delete --------------------------------------------------------------------------------------------------


async def test_deleted_and_replaced_objects_are_kept() -> None:
    async with serve(Settings(soft_delete_seconds=604800)) as emulator:
        emulator.make_bucket("data")
        bucket = google_client(emulator).bucket("data")
        first = await written(bucket, "a", b"1", k="v")
        second = await written(bucket, "a", b"2")
        await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", retry=None))
        third = int((await off_loop(lambda: bucket.get_blob("b", retry=None))).generation)
        await off_loop(lambda: bucket.blob("b").delete(retry=None))

        def kept() -> list[tuple[str, int]]:
            return [(one.name, one.generation) for one in bucket.list_blobs(soft_deleted=True, retry=None)]

        # What a move took from one name it gave to another: nothing to keep.
        assert await off_loop(kept) == [("a", first), ("b", third)]
        assert second not in {first, third}
        assert await names(bucket) == []
        restored = await off_loop(lambda: bucket.restore_blob("a", generation=first, retry=None))
        assert (restored.metadata, await held(bucket, "a")) == ({"k": "v"}, b"1")
        with refused(404, "notFound"):
            await off_loop(lambda: bucket.restore_blob("a", generation=second, retry=None))


# --- Retention and holds ------------------------------------------------------------------------------------------


async def is_locked(bucket: Bucket, wire: Wire, reason: str) -> None:
    """That `locked` can be neither deleted, replaced nor moved, nor be the target of a move or a copy."""
    before = await held(bucket, "locked")
    await wire.insert("free", b"free")
    for method, path in (
        ("DELETE", "o/locked"),
        ("POST", "o/locked/moveTo/o/away"),
        ("POST", "o/free/moveTo/o/locked"),
        ("POST", "o/free/rewriteTo/b/data/o/locked"),
    ):
        answer = await wire(method, f"/storage/v1/b/data/{path}")
        assert (answer.status, answer.reason) == (403, reason)
    assert (await wire.insert("locked")).reason == reason
    assert (await names(bucket), await held(bucket, "locked")) == (["free", "locked"], before)


@pytest.mark.parametrize("hold", ["temporaryHold", "eventBasedHold"])
async def test_a_hold_keeps_an_object_as_it_is(bucket: Bucket, wire: Wire, hold: str) -> None:
    await wire.insert("locked")
    await wire("PATCH", "/storage/v1/b/data/o/locked", {hold: True})
    await is_locked(bucket, wire, "objectUnderActiveHold")
    await wire("PATCH", "/storage/v1/b/data/o/locked", {hold: False})
    assert (await wire("DELETE", "/storage/v1/b/data/o/locked")).status == 204


async def test_an_object_may_be_retained(bucket: Bucket, wire: Wire) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    etag = (await wire.insert("locked")).json["etag"]
    changed = await wire(
        "PATCH", "/storage/v1/b/data/o/locked", {"retention": {"mode": "Locked", "retainUntilTime": until}}
    )
    assert changed.json["etag"] != etag
    await is_locked(bucket, wire, "retentionPolicyNotMet")


async def test_a_bucket_may_retain_its_objects(bucket: Bucket, wire: Wire, gcs: GcsEmulator) -> None:
    await wire.insert("locked")
    await wire.insert("free", b"free")
    await wire("PATCH", "/storage/v1/b/data", {"retentionPolicy": {"retentionPeriod": "3600"}})
    for method, path in (("DELETE", "o/locked"), ("POST", "o/locked/moveTo/o/away")):
        assert (await wire(method, f"/storage/v1/b/data/{path}")).reason == "retentionPolicyNotMet"
    gcs.namespace.buckets["data"].objects["locked"].created -= 3601
    assert (await wire("DELETE", "/storage/v1/b/data/o/locked")).status == 204


async def test_a_locked_policy_does_not_get_shorter(wire: Wire) -> None:
    await wire("PATCH", "/storage/v1/b/data", {"retentionPolicy": {"retentionPeriod": "3600"}})
    locked = await wire("POST", "/storage/v1/b/data/lockRetentionPolicy?ifMetagenerationMatch=2")
    assert locked.json["retentionPolicy"]["isLocked"] is True
    shorter = await wire("PATCH", "/storage/v1/b/data", {"retentionPolicy": {"retentionPeriod": "60"}})
    assert shorter.reason == "retentionPolicyLocked"


# --- Permissions and tokens ---------------------------------------------------------------------------------------


@pytest.fixture
async def guarded() -> AsyncIterator[GcsEmulator]:
    """One that wants a token."""
    async with serve(Settings(bearer_tokens=frozenset({"right"}))) as emulator:
        emulator.make_bucket("data")
        yield emulator


async def test_a_token_is_verified(guarded: GcsEmulator) -> None:
    bucket = google_client(guarded, "right").bucket("data")
    await written(bucket, "a")
    async with aiohttp.ClientSession() as session:
        wire = Wire(guarded, session)
        for sent, reason in (({"Authorization": "Bearer wrong"}, "authError"), ({}, "required")):
            answer = await wire("DELETE", "/storage/v1/b/data/o/a", headers=sent)
            assert (answer.status, answer.reason) == (401, reason)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert await names(bucket) == ["a"]


async def test_a_token_that_is_not_known_is_refused_where_none_is_needed(wire: Wire) -> None:
    answer = await wire("GET", "/storage/v1/b/data/o", headers={"Authorization": "Bearer any"})
    assert (answer.status, answer.reason) == (401, "authError")


async def test_tokens_are_given_out(guarded: GcsEmulator, tmp_path: Path) -> None:
    scopes = ["https://www.googleapis.com/auth/devstorage.read_write"]
    async with aiohttp.ClientSession() as session:
        for path in (user_file(tmp_path, guarded), service_file(tmp_path, guarded)):
            token = await Token(service_file=str(path), session=session, scopes=scopes).get()
            assert await names(google_client(guarded, token).bucket("data")) == []
        wire = Wire(guarded, session)
        given = await wire("GET", "/computeMetadata/v1/instance/service-accounts/default/token")
        assert given.status == 403
        asked = {"Metadata-Flavor": "Google"}
        given = await wire("GET", "/computeMetadata/v1/instance/service-accounts/default/token", headers=asked)
        assert await names(google_client(guarded, given.json["access_token"]).bucket("data")) == []
        assert (await wire("POST", "/token", b"grant_type=refresh_token")).status == 400
        assert guarded.access.given_out == 3
        guarded.access.revoke()
        bearer = {"Authorization": f"Bearer {given.json['access_token']}"}
        assert (await wire("GET", "/storage/v1/b/data/o", headers=bearer)).status == 401


@pytest.mark.parametrize(
    ("denied", "call"),
    [
        ("storage.objects.create", "insert"),
        ("storage.objects.delete", "replace"),
        ("storage.objects.delete", "delete"),
        ("storage.objects.move", "move"),
        ("storage.objects.get", "read"),
        ("storage.objects.list", "list"),
        ("storage.objects.update", "patch"),
        ("storage.buckets.get", "bucket"),
    ],
)
async def test_a_permission_may_be_missing(denied: str, call: str) -> None:
    async with serve(Settings(denied=frozenset({denied}))) as emulator, aiohttp.ClientSession() as session:
        emulator.make_bucket("data")
        wire = Wire(emulator, session)
        if call != "insert":
            assert (await wire.insert("a")).status == 200
        calls = {
            "insert": lambda: wire.insert("a"),
            "replace": lambda: wire.insert("a"),
            "delete": lambda: wire("DELETE", "/storage/v1/b/data/o/a"),
            "move": lambda: wire("POST", "/storage/v1/b/data/o/a/moveTo/o/b"),
            "read": lambda: wire("GET", "/storage/v1/b/data/o/a"),
            "list": lambda: wire("GET", "/storage/v1/b/data/o"),
            "patch": lambda: wire("PATCH", "/storage/v1/b/data/o/a", {}),
            "bucket": lambda: wire("GET", "/storage/v1/b/data"),
        }
        answer = await calls[call]()
        assert (answer.status, answer.reason) == (403, "forbidden")
        assert denied in answer.json["error"]["message"]
        asked = [denied, "storage.objects.restore"]
        bucket = google_client(emulator).bucket("data")
        assert await off_loop(lambda: bucket.test_iam_permissions(asked, retry=None)) == ["storage.objects.restore"]

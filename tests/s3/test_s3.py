"""What the suite does not ask of S3: names, long listings, markers, what new objects are told to be, what is probed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from committer.errors import (
    ConfigurationError,
    DestinationNotFoundError,
    InvalidPathError,
    StoreIsADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StorePartsError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.logs import audit
from committer.paths import StorePath
from committer.stores.helpers import walk
from committer.stores.s3 import S3Store
from committer.stores.uploads import UploadPart
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.proxy import Proxy, Trouble, proxy_to
from tests.s3.servers import BUCKET, Server

STAMP = "job-1/3/0/0f3a"
TRAPS = (
    "with space/a b.parquet",
    "per%20cent/100%",
    "plus+plus/c++",
    "ünïcödé/日本語-😀",
    "key=value/date=2026-11-21",
    "time=12:30:00/part:0",
    "amp&ersand/<angle>",
    "question?mark/#hash",
)


@pytest.fixture
async def on_moto(moto_server: Server, root: StorePath) -> AsyncIterator[S3Store]:
    store = S3Store.open_for(root, options_for(moto_server))
    yield store
    await store.close()


@asynccontextmanager
async def through_proxy(server: Server, root: StorePath, **options: object) -> AsyncIterator[tuple[S3Store, Proxy]]:
    async with proxy_to(server.url) as proxy:
        store = S3Store.open_for(root, options_for(Server("proxy", proxy.url), **options))
        try:
            yield store, proxy
        finally:
            await store.close()


async def each(count: int, call: Callable[[int], Awaitable[object]], *, at_once: int = 32) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(work() for _ in range(at_once)))


async def uploaded(store: S3Store, path: StorePath, data: bytes = b"1", *, stamp: str = STAMP) -> str | None:
    upload_id = await store.create_upload(path, stamp=stamp)
    return await store.complete_upload(path, upload_id, [await store.put_part(path, upload_id, 1, data)])


# --- Names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["seaweedfs", "moto"])
async def test_every_call_takes_awkward_names(where: str, request: pytest.FixtureRequest, root: StorePath) -> None:
    server: Server = request.getfixturevalue(f"{where}_server")
    channel = BucketChannel(server.client, root)
    store = S3Store.open_for(root, options_for(server))
    for name in TRAPS:
        path = root / name
        await uploaded(store, path, name.encode())
        assert (await store.status(path)).stamp == STAMP
        assert await store.read(path, limit=99) == name.encode()
    begun = {await store.create_upload(root / name, stamp=STAMP): root / name for name in TRAPS}
    assert {one.upload_id: one.path async for one in store.list_uploads(root)} == begun
    for upload_id, path in begun.items():
        await store.abort_upload(path, upload_id)
    assert await channel.files() == {name: name.encode() for name in TRAPS}
    found = {status.path async for status in walk(store, root) if not status.is_directory}
    assert found == {root / name for name in TRAPS}
    for name in TRAPS[:2]:
        identity = (await store.status(root / name)).identity
        assert await store.delete_file_if(root / name, identity=str(identity))
    assert await store.delete_files(dict.fromkeys(root / name for name in TRAPS[2:])) == {}
    assert await channel.files() == {}
    await store.close()


async def test_names_that_are_no_keys(store: S3Store, root: StorePath) -> None:
    for name in ("nul\0byte", "half\udce9surrogate", "x" * 1025):
        with pytest.raises(InvalidPathError):
            await store.put(StorePath("s3", BUCKET, f"/{name}"), b"")
        with pytest.raises(InvalidPathError):
            await store.create_upload(StorePath("s3", BUCKET, f"/{name}"), stamp=STAMP)
    await store.put(StorePath("s3", BUCKET, f"{root.path}/{'/'.join(['é' * 40] * 12)}"), b"")
    for elsewhere in ("s3://other/x", "memory://bucket/x"):
        with pytest.raises(ConfigurationError, match="another store"):
            await store.status(StorePath.of(elsewhere))


async def test_a_bucket_that_is_not_there(moto_server: Server) -> None:
    root = StorePath("s3", "no-such-bucket", "/x")
    store = S3Store.open_for(root, options_for(moto_server))
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: store.put(root, b"1"),
        lambda: store.create_upload(root, stamp=STAMP),
        lambda: store.abort_upload(root, "any"),
        lambda: store.status(root),
    ]
    for use in uses:
        with pytest.raises(DestinationNotFoundError, match="no such bucket: no-such-bucket") as caught:
            await use()
        assert caught.value.next_step == "create the bucket first, or correct its name"
    await store.close()


async def test_the_bucket_itself_is_no_file(store: S3Store, on_moto: S3Store) -> None:
    """PUT without a key makes a bucket, DELETE deletes it."""
    bucket = StorePath("s3", BUCKET, "/")
    for use in (
        store.put(bucket, b"1"),
        store.read(bucket, limit=9),
        store.create_upload(bucket, stamp=STAMP),
        store.delete_file_if(bucket, identity="x"),
    ):
        with pytest.raises(StoreIsADirectoryError):
            await use
    assert not await on_moto.delete_file(bucket)
    await on_moto.put(bucket / "in-the-root", b"")
    assert (await on_moto.status(bucket)).is_directory
    assert "in-the-root" in {status.path.name async for status in on_moto.list(bucket)}
    assert await on_moto.delete_file(bucket / "in-the-root")


# --- Listings -------------------------------------------------------------------------------------------------------


async def test_more_files_than_a_page(store: S3Store, root: StorePath, channel: BucketChannel) -> None:
    many = 1005
    await each(many, lambda number: store.put(root / f"d/{number:04}", b""))
    await store.put(root / "d/sub/file", b"")
    await store.put(root / "d2", b"")
    names = [status.path.name async for status in store.list(root / "d")]
    assert sorted(names) == [*(f"{number:04}" for number in range(many)), "sub"]
    with pytest.raises(StoreNotEmptyError):
        await store.delete_directory(root / "d", recursive=False)
    assert await store.delete_directory(root / "d", recursive=True)
    assert set(await channel.files()) == {"d2"}


async def test_more_uploads_and_parts_than_a_page(on_moto: S3Store, root: StorePath) -> None:
    """moto pages as S3 does; SeaweedFS gives up to ten thousand at once."""
    many = 1005
    begun: dict[str, StorePath] = {}

    async def begin(number: int) -> None:
        path = root / f"d/{number % 700:03}"
        begun[await on_moto.create_upload(path, stamp=STAMP)] = path

    await each(many, begin, at_once=4)
    found = {one.upload_id: one.path async for one in on_moto.list_uploads(root)}
    assert found == begun
    upload_id, path = next(iter(begun.items()))
    await each(many, lambda number: on_moto.put_part(path, upload_id, number + 1, b"x"), at_once=4)
    parts = [part async for part in on_moto.list_parts(path, upload_id)]
    assert [part.number for part in parts] == list(range(1, many + 1))
    assert {(part.size, part.etag) for part in parts} == {(1, "9dd4e461268c8034f5c8564e155c67a6")}


async def test_a_sibling_s_uploads_are_not_listed(store: S3Store, root: StorePath, channel: BucketChannel) -> None:
    """`dataset10` begins with `dataset1`, and is none of its business."""
    names = ("dataset1/file", "dataset10/file", "dataset1", "dataset1.bak/file")
    for name in names:
        await store.create_upload(root / name, stamp=STAMP)
    found = [one async for one in store.list_uploads(root / "dataset1")]
    assert [one.path for one in found] == [root / "dataset1/file"]
    for one in found:
        await store.abort_upload(one.path, one.upload_id)
    assert sorted(name for name, _id in await channel.uploads()) == ["dataset1", "dataset1.bak/file", "dataset10/file"]


async def test_markers_of_other_tools(on_moto: S3Store, moto_server: Server, root: StorePath) -> None:
    """An empty object whose key ends in a slash stands for a directory, for the console and for Hadoop's S3A."""
    channel = BucketChannel(moto_server.client, root)
    for name in ("empty/", "d/", "d/file"):
        await channel.write(name, b"")
    assert (await on_moto.status(root / "empty")).is_directory
    assert [one async for one in on_moto.list(root / "empty")] == []
    assert [one.path.name async for one in on_moto.list(root / "d")] == ["file"]
    assert {one.path.name async for one in on_moto.list(root)} == {"empty", "d"}
    with pytest.raises(StoreNotEmptyError):
        await on_moto.delete_directory(root / "d", recursive=False)
    assert await on_moto.delete_directory(root / "empty", recursive=False)
    assert await on_moto.delete_directory(root / "d", recursive=True)
    assert await channel.files() == {}


async def test_what_comes_meanwhile_is_not_deleted(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    """Deleting an empty directory deletes what was seen, its marker, and no file that was put there since."""
    page = f"<ListBucketResult><Contents><Key>{root.path[1:]}/d/</Key><Size>0</Size></Contents></ListBucketResult>"
    await proxied.put(root / "d/file", b"1")
    proxy.troubles = [Trouble("answer", method="GET", status=200, body=page)]
    await proxied.delete_directory(root / "d", recursive=False)
    assert await proxied.read(root / "d/file", limit=9) == b"1"


async def test_keys_that_are_no_names(on_moto: S3Store, moto_server: Server, root: StorePath) -> None:
    channel = BucketChannel(moto_server.client, root)
    for name in ("d//file", "d/./file", "d/../file", "d/real"):
        moto_server.client.put_object(Bucket=BUCKET, Key=f"{root.path[1:]}/{name}", Body=b"")
    found = [one async for one in on_moto.list(root / "d")]
    assert [one.path.name for one in found if not one.is_special] == ["real"]
    assert len(found) == 4
    assert await on_moto.delete_directory(root / "d", recursive=True)
    assert await channel.files() == {}


# --- What new objects are told to be --------------------------------------------------------------------------------


async def test_what_an_upload_is_begun_with(moto_server: Server, root: StorePath) -> None:
    channel = BucketChannel(moto_server.client, root)
    store = S3Store.open_for(
        root,
        options_for(
            moto_server, storage_class="STANDARD_IA", server_side_encryption="aws:kms", kms_key_id="alias/aws/s3"
        ),
    )
    await uploaded(store, root / "uploaded")
    writer = await store.open_writer(root / "written")
    await writer.write(b"1")
    await writer.close()
    await store.put(root / "record", b"1")
    for name, stored in (("uploaded", "STANDARD_IA"), ("written", "STANDARD_IA"), ("record", None)):
        head = await channel.head(name)
        assert head.get("StorageClass") == stored, name
        assert head["ServerSideEncryption"] == "aws:kms"
        assert head["SSEKMSKeyId"].endswith("alias/aws/s3")
    assert (await channel.head("uploaded"))["Metadata"] == {"committer-attempt": STAMP}
    await store.close()


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
async def test_checksums_go_with_parts_and_come_back_at_completion(
    server: Server, root: StorePath, algorithm: str
) -> None:
    async with through_proxy(server, root, checksum_algorithm=algorithm) as (store, proxy):
        path = root / "file"
        upload_id = await store.create_upload(path, stamp=STAMP)
        part = await store.put_part(path, upload_id, 1, b"12345")
        assert part.checksum_algorithm == algorithm
        assert proxy.seen[-1].headers[f"x-amz-checksum-{algorithm.lower()}"] == part.checksum
        assert proxy.seen[0].headers["x-amz-checksum-algorithm"] == algorithm
        await store.complete_upload(path, upload_id, [part])
        assert await store.read(path, limit=9) == b"12345"
        await store.put(root / "other", b"x" * 300_000)


async def test_a_part_damaged_on_the_way_is_not_kept(server: Server, root: StorePath) -> None:
    """The signature holds the digest of the body: what arrives otherwise is refused, and may be sent again."""
    async with through_proxy(server, root, checksum_algorithm="CRC32") as (store, proxy):
        path = root / "file"
        upload_id = await store.create_upload(path, stamp=STAMP)
        proxy.damaged = 1
        with pytest.raises(StoreUnavailableError):
            await store.put_part(path, upload_id, 1, b"12345")
        assert [one async for one in store.list_parts(path, upload_id)] == []


async def test_what_a_record_says_of_parts_cannot_end_its_element(proxied: S3Store, root: StorePath) -> None:
    """A part read from a record is not trusted: its etag is text, whatever it looks like."""
    path = root / "file"
    upload_id = await proxied.create_upload(path, stamp=STAMP)
    await proxied.put_part(path, upload_id, 1, b"1")
    evil = UploadPart(1, '"</ETag></Part><Part>', 1, "</x>", "CRC32><y")
    with pytest.raises(StorePartsError):
        await proxied.complete_upload(path, upload_id, [evil])


async def test_requests_name_the_job(proxied: S3Store, proxy: Proxy, root: StorePath) -> None:
    with audit(ji="job-1", ta="attempt_job-1_m_000003_0", st="publish"):
        await proxied.put(root / "file", b"1")
    assert proxy.seen[-1].headers["referer"].endswith("?ji=job-1&op=put&st=publish&ta=attempt_job-1_m_000003_0")
    assert proxy.seen[-1].headers["user-agent"].startswith("lake-committer/")
    await proxied.put(root / "file", b"1")
    assert "referer" not in proxy.seen[-1].headers


# --- Probing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["seaweedfs", "moto"])
async def test_a_service_that_keeps_the_rules(where: str, request: pytest.FixtureRequest, root: StorePath) -> None:
    server: Server = request.getfixturevalue(f"{where}_server")
    store = S3Store.open_for(root, options_for(server))
    await store.probe(root)
    assert store.capabilities.conditional_delete
    with pytest.raises(StoreNotFoundError):
        await store.status(root)
    assert [one async for one in store.list_uploads(root)] == []
    await store.close()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble("answer", method="PUT", status=200, headers={"ETag": '"1"'}, times=2), "put replace"),
        (
            Trouble(
                "answer",
                method="POST",
                query="uploadId",
                status=200,
                body="<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
            ),
            "completion replace",
        ),
        (Trouble("answer", method="HEAD", status=200, headers={"Content-Length": "7"}), "metadata"),
    ],
)
async def test_a_service_that_breaks_one(
    proxied: S3Store, proxy: Proxy, root: StorePath, trouble: Trouble, said: str
) -> None:
    proxy.troubles = [dataclasses.replace(trouble)]
    with pytest.raises(UnsupportedError, match=said):
        await proxied.probe(root)
    assert [one async for one in proxied.list_uploads(root)] == []


@pytest.mark.parametrize("status", [204, 501])
async def test_a_service_that_deletes_whatever_is_there(
    proxied: S3Store, proxy: Proxy, root: StorePath, status: int
) -> None:
    proxy.troubles = [Trouble("fail after", method="DELETE", status=status)]
    await proxied.probe(root)
    assert not proxied.capabilities.conditional_delete
    with pytest.raises(UnsupportedError):
        await proxied.delete_file_if(root / "file", identity="x")


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "InvalidArgument")])
async def test_a_service_that_knows_no_condition_of_a_put(
    proxied: S3Store, proxy: Proxy, root: StorePath, status: int, code: str
) -> None:
    """It refuses the header; the file is put without it, as nothing rests on the condition alone."""
    seen = await proxied.put(root / "file", b"1")
    proxy.troubles = [Trouble("answer", method="PUT", status=status, body=f"<Error><Code>{code}</Code></Error>")]
    await proxied.replace_file(root / "file", b"2", seen=seen)
    assert [("if-match" in request.headers) for request in proxy.seen if request.method == "PUT"][-2:] == [True, False]
    assert await proxied.read(root / "file", limit=10) == b"2"

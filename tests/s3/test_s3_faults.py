"""Answers that are lost, cut off, or no answers: nothing is sent twice that may be done, and what can be told is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePermissionError,
    StoreThrottledError,
    StoreUnavailableError,
    StoreUploadNotFoundError,
    TaskError,
)
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.helpers import finish_upload
from committer.stores.paced import PacedStore
from committer.stores.s3 import S3Store
from committer.stores.s3.store import S3Writer
from committer.stores.uploads import UploadPart
from tests.s3.proxy import Proxy, Trouble, refusal

STAMP = "job-1/3/0/0f3a"
PART_BYTES = S3Writer.shortest_part_bytes


@pytest.fixture
def store(proxied: S3Store) -> S3Store:
    return proxied


def paced_over(store: S3Store) -> PacedStore:
    return PacedStore(store, pacer=Pacer("test", concurrency=4), statistics=Statistics(), owned=False)


async def begin(store: S3Store, path: StorePath, data: bytes = b"12345") -> tuple[str, list[UploadPart]]:
    upload_id = await store.create_upload(path, stamp=STAMP)
    return upload_id, [await store.put_part(path, upload_id, 1, data)]


async def finish(
    store: Store, path: StorePath, upload_id: str, parts: list[UploadPart], *, exclusive: bool
) -> str | None:
    return await finish_upload(store, path, upload_id, parts, stamp=STAMP, size=5, exclusive=exclusive)


COMPLETIONS = {"method": "POST", "query": "uploadId="}


# --- Completions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lose answer", "cut answer"])
@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_completion_whose_answer_is_lost_is_looked_at(
    store: S3Store, proxy: Proxy, root: StorePath, kind: str, exclusive: bool
) -> None:
    upload_id, parts = await begin(store, root / "file")
    proxy.troubles = [Trouble(kind, **COMPLETIONS)]  # type: ignore[arg-type]
    identity = await finish(store, root / "file", upload_id, parts, exclusive=exclusive)
    assert identity == (await store.status(root / "file")).identity
    assert proxy.count("POST", "uploadId=") == 1


@pytest.mark.parametrize("kind", ["lose answer", "lose request", "cut answer"])
@pytest.mark.parametrize("paced", [False, True])
async def test_the_store_itself_only_says_that_it_does_not_know(
    store: S3Store, proxy: Proxy, root: StorePath, kind: str, paced: bool
) -> None:
    """And pacing never completes twice."""
    upload_id, parts = await begin(store, root / "file")
    proxy.troubles = [Trouble(kind, **COMPLETIONS)]  # type: ignore[arg-type]
    with pytest.raises(StoreOutcomeUnknownError) as caught:
        await (paced_over(store) if paced else store).complete_upload(root / "file", upload_id, parts)
    assert (caught.value.outcome, caught.value.path) == ("unknown", str(root / "file"))
    assert proxy.count("POST", "uploadId=") == 1


async def test_a_completion_that_did_not_arrive(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    """It is sent again once a look has shown that the upload still pends, and not for ever."""
    upload_id, parts = await begin(store, root / "file")
    proxy.troubles = [Trouble("lose request", times=9, **COMPLETIONS)]
    with pytest.raises(StoreOutcomeUnknownError):
        await finish(store, root / "file", upload_id, parts, exclusive=True)
    assert proxy.count("POST", "uploadId=") == 5
    proxy.troubles = [Trouble("lose request", **COMPLETIONS)]
    assert await finish(store, root / "file", upload_id, parts, exclusive=True)


@pytest.mark.parametrize("exclusive", [False, True])
async def test_no_such_upload_is_looked_at(store: S3Store, proxy: Proxy, root: StorePath, exclusive: bool) -> None:
    """The upload is gone: completed by this request sent before, or aborted."""
    path = root / "file"
    gone = Trouble("answer", status=404, body=refusal("NoSuchUpload"), **COMPLETIONS)
    upload_id, parts = await begin(store, path)
    proxy.troubles = [gone]
    with pytest.raises(StoreUploadNotFoundError):
        await finish(store, path, upload_id, parts, exclusive=exclusive)
    identity = await store.complete_upload(path, upload_id, parts)
    gone.times = 1
    assert await finish(store, path, upload_id, parts, exclusive=exclusive) == identity
    gone.times = 1
    await store.put(path, b"other")
    with pytest.raises(StoreUploadNotFoundError):
        await finish(store, path, upload_id, parts, exclusive=exclusive)


async def test_one_s_own_file_in_the_way_is_no_refusal(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    path = root / "file"
    upload_id, parts = await begin(store, path)
    identity = await store.complete_upload(path, upload_id, parts)
    proxy.troubles = [Trouble("answer", status=412, body=refusal("PreconditionFailed"), **COMPLETIONS)]
    assert await finish(store, path, upload_id, parts, exclusive=True) == identity
    other = await store.create_upload(path, stamp="other")
    with pytest.raises(StoreExistsError):
        part = await store.put_part(path, other, 1, b"54321")
        await finish_upload(store, path, other, [part], stamp="other", size=5, exclusive=True)


async def test_what_cannot_be_looked_at_is_unknown(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    upload_id, parts = await begin(store, root / "file")
    proxy.troubles = [
        Trouble("answer", status=404, body=refusal("NoSuchUpload"), **COMPLETIONS),
        Trouble("answer", method="HEAD", status=403),
    ]
    with pytest.raises(StoreOutcomeUnknownError, match="looking failed"):
        await finish(store, root / "file", upload_id, parts, exclusive=False)


# S3 begins the answer, keeps the connection alive with spaces, and only then knows what became of it.
LATE = '<?xml version="1.0" encoding="UTF-8"?>\n   \n   <Error><Code>{}</Code></Error>'


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, LATE.format("InternalError"), StoreOutcomeUnknownError),
        (200, LATE.format("SomethingNew"), StoreOutcomeUnknownError),
        (200, LATE.format("SlowDown"), StoreThrottledError),
        (200, LATE.format("NoSuchUpload"), StoreUploadNotFoundError),
        (200, LATE.format("PreconditionFailed"), StoreExistsError),
        (200, LATE.format("ConditionalRequestConflict"), StoreConflictError),
        (200, LATE.format("InvalidPart"), StorePartsError),
        (200, LATE.format("AccessDenied"), StorePermissionError),
        (200, "", StoreOutcomeUnknownError),
        (200, "   \n", StoreOutcomeUnknownError),
        (200, "<CompleteMultipartUploadResult><ETag>x</ETag>", StoreOutcomeUnknownError),
        (200, "<html>hello</html>", StoreOutcomeUnknownError),
        (409, refusal("ConditionalRequestConflict"), StoreConflictError),
        (409, refusal("OperationAborted"), StoreConflictError),
        (412, refusal("PreconditionFailed"), StoreExistsError),
    ],
)
async def test_what_the_answer_to_a_completion_means(
    store: S3Store, proxy: Proxy, root: StorePath, status: int, body: str, error: type[CommitterError]
) -> None:
    upload_id, parts = await begin(store, root / "file")
    proxy.troubles = [Trouble("answer", status=status, body=body, **COMPLETIONS)]
    with pytest.raises(error) as caught:
        await store.complete_upload(root / "file", upload_id, parts, exclusive=True)
    expected = "unknown" if error is StoreOutcomeUnknownError else "unchanged"
    assert getattr(caught.value, "outcome", "") == expected
    assert [one.upload_id async for one in store.list_uploads(root)] == [upload_id]


# --- Parts and beginnings -------------------------------------------------------------------------------------------


async def test_a_part_whose_answer_is_lost_is_sent_again(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    paced = paced_over(store)
    upload_id = await store.create_upload(root / "file", stamp=STAMP)
    proxy.troubles = [Trouble("lose answer", method="PUT", query="partNumber=1")]
    part = await paced.put_part(root / "file", upload_id, 1, b"12345")
    await paced.complete_upload(root / "file", upload_id, [part])
    assert await store.read(root / "file", limit=9) == b"12345"
    assert proxy.count("PUT", "partNumber=1") == 2


async def test_an_upload_whose_beginning_is_unanswered_is_found(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    proxy.troubles = [Trouble("lose answer", method="POST", query="uploads")]
    with pytest.raises(StoreOutcomeUnknownError):
        await store.create_upload(root / "file", stamp=STAMP)
    proxy.troubles = [Trouble("cut answer", method="POST", query="uploads")]
    with pytest.raises(StoreOutcomeUnknownError):
        await store.create_upload(root / "file", stamp=STAMP)
    found = [one async for one in store.list_uploads(root)]
    assert [one.path for one in found] == [root / "file"] * 2
    assert proxy.count("POST", "uploads") == 2


@pytest.mark.parametrize("kind", ["lose answer", "lose request"])
async def test_a_writer_outlives_lost_parts(store: S3Store, proxy: Proxy, root: StorePath, kind: str) -> None:
    paced = paced_over(store)
    data = b"x" * PART_BYTES + b"y" * PART_BYTES + b"tail"
    proxy.troubles = [Trouble(kind, method="PUT", query="partNumber=2")]  # type: ignore[arg-type]
    writer = await paced.open_writer(root / "file")
    await writer.write(data)
    status = await writer.close()
    assert status.size == len(data)
    assert await store.read(root / "file", limit=1 << 25) == data
    # Under another number: what was lost may still arrive.
    assert proxy.count("PUT", "partNumber=2") == 1
    assert [one async for one in store.list_uploads(root)] == []


@pytest.mark.parametrize("long", [False, True])
async def test_a_writer_looks_for_what_it_closed(store: S3Store, proxy: Proxy, root: StorePath, long: bool) -> None:
    writer = await store.open_writer(root / "file")
    await writer.write(b"x" * (PART_BYTES if long else 10))
    proxy.troubles = [Trouble("lose answer", **(COMPLETIONS if long else {"method": "PUT"}))]
    status = await writer.close()
    assert status.identity == (await store.status(root / "file")).identity
    assert proxy.count("POST", "uploadId=") + proxy.count("PUT") == (2 if long else 1)


@pytest.mark.parametrize("long", [False, True])
async def test_a_writer_does_not_claim_what_it_cannot_see(
    store: S3Store, proxy: Proxy, root: StorePath, long: bool
) -> None:
    writer = await store.open_writer(root / "file")
    await writer.write(b"x" * (PART_BYTES if long else 10))
    proxy.troubles = [Trouble("lose request", times=9, **(COMPLETIONS if long else {"method": "PUT"}))]
    with pytest.raises(StoreOutcomeUnknownError):
        await writer.close()
    with pytest.raises(TaskError):
        await writer.close()
    await writer.abort()
    assert [one async for one in store.list_uploads(root)] == []


@pytest.mark.parametrize("status", [503, 400])
async def test_a_writer_that_cannot_look_does_not_know(
    store: S3Store, proxy: Proxy, root: StorePath, status: int
) -> None:
    """Sent again, the put would be refused because of the file that it made itself."""
    writer = await paced_over(store).open_writer(root / "file")
    await writer.write(b"1")
    proxy.troubles = [Trouble("lose answer", method="PUT"), Trouble("answer", method="HEAD", status=status, times=9)]
    with pytest.raises(StoreOutcomeUnknownError, match="looking failed"):
        await writer.close()
    assert proxy.count("PUT") == 1


@pytest.mark.parametrize("long", [False, True])
async def test_a_writer_replaces_nothing(store: S3Store, root: StorePath, long: bool) -> None:
    writer = await store.open_writer(root / "file")
    await writer.write(b"x" * (PART_BYTES if long else 10))
    await store.put(root / "file", b"other")
    with pytest.raises(StoreExistsError):
        await writer.close()
    await writer.abort()
    assert await store.read(root / "file", limit=9) == b"other"
    assert [one async for one in store.list_uploads(root)] == []


# --- Puts and deletes -----------------------------------------------------------------------------------------------


async def test_a_put_in_conflict_is_tried_again(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    """409 says that another request was under way and this one was not done: no answer to who may create a record."""
    conflict = Trouble("answer", method="PUT", status=409, body=refusal("ConditionalRequestConflict"), times=2)
    proxy.troubles = [conflict]
    await store.put(root / "file", b"1", exclusive=True)
    assert proxy.count("PUT") == 3
    conflict.times = 100
    with pytest.raises(StoreConflictError):
        await store.put(root / "other", b"1", exclusive=True)


@pytest.mark.parametrize("kind", ["lose answer", "lose request", "fail after"])
async def test_a_put_whose_answer_is_lost_is_unknown(store: S3Store, proxy: Proxy, root: StorePath, kind: str) -> None:
    proxy.troubles = [Trouble(kind, method="PUT", body=refusal("InternalError"))]  # type: ignore[arg-type]
    with pytest.raises(StoreOutcomeUnknownError):
        await store.put(root / "file", b"1", exclusive=True)
    assert proxy.count("PUT") == 1


@pytest.mark.parametrize(
    "body", ["<DeleteResult><Error>", "<html>fine</html>", "<DeleteResult><Error><Key>a</Key></Error></DeleteResult>"]
)
async def test_deleting_many_whose_answer_says_nothing_of_them(
    store: S3Store, proxy: Proxy, root: StorePath, body: str
) -> None:
    """The service said yes and then something else: some are deleted, and which is not known."""
    proxy.troubles = [Trouble("answer", status=200, body=body, method="POST")]
    with pytest.raises(StoreOutcomeUnknownError):
        await store.delete_files({root / "file": None})


@pytest.mark.parametrize("kind", ["lose answer", "cut answer"])
async def test_deleting_many_whose_answer_is_lost(store: S3Store, proxy: Proxy, root: StorePath, kind: str) -> None:
    await store.put(root / "file", b"1")
    proxy.troubles = [Trouble(kind, method="POST", query="delete")]  # type: ignore[arg-type]
    with pytest.raises(StoreOutcomeUnknownError):
        await store.delete_files({root / "file": None})
    paced = paced_over(store)
    proxy.troubles = [Trouble(kind, method="POST", query="delete")]  # type: ignore[arg-type]
    assert await paced.delete_files({root / "file": None}) == {}


async def test_deleting_what_was_changed_meanwhile(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    """The look finds the file, and by the time the delete arrives it is gone: 412 of some services, 404 of others."""
    status = await store.put(root / "file", b"1")
    for code in (404, 412):
        proxy.troubles = [Trouble("answer", method="DELETE", status=code, body=refusal("Gone"))]
        if code == 412:
            with pytest.raises(StoreError, match="another file is there"):
                await store.delete_file_if(root / "file", identity=str(status.identity))
        else:
            assert not await store.delete_file_if(root / "file", identity=str(status.identity))


# --- What other refusals mean ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "error", "advised"),
    [
        (503, "SlowDown", StoreThrottledError, ""),
        (429, "TooManyRequests", StoreThrottledError, ""),
        (503, "ServiceUnavailable", StoreOutcomeUnknownError, ""),
        (500, "InternalError", StoreOutcomeUnknownError, ""),
        (502, "", StoreOutcomeUnknownError, ""),
        (400, "RequestTimeout", StoreUnavailableError, ""),
        (400, "XAmzContentSHA256Mismatch", StoreUnavailableError, ""),
        (403, "AccessDenied", StorePermissionError, "s3:ListBucketMultipartUploads"),
        (403, "InvalidAccessKeyId", StorePermissionError, "check access_key_id"),
        (403, "SignatureDoesNotMatch", StorePermissionError, "check access_key_id"),
        (403, "InvalidToken", StorePermissionError, "check access_key_id"),
        (400, "ExpiredToken", StorePermissionError, "get new keys"),
        (403, "ExpiredToken", StorePermissionError, "get new keys"),
        (403, "RequestTimeTooSkewed", StorePermissionError, "clock"),
        (301, "PermanentRedirect", ConfigurationError, ""),
        (400, "InvalidArgument", ConfigurationError, ""),
    ],
)
async def test_refusals_of_a_put(
    store: S3Store, proxy: Proxy, root: StorePath, status: int, code: str, error: type[CommitterError], advised: str
) -> None:
    proxy.troubles = [Trouble("answer", method="PUT", status=status, body=refusal(code) if code else "<html/>")]
    with pytest.raises(error) as caught:
        await store.put(root / "file", b"1")
    assert type(caught.value) is error
    assert str(status) in str(caught.value)
    assert code in str(caught.value)
    assert "said so" not in str(caught.value), "what a service says may hold a secret"
    assert proxy.count("PUT") == 1
    assert advised in caught.value.next_step
    if error is StorePermissionError:
        assert ("s3:" in caught.value.next_step) == (code == "AccessDenied")


async def test_a_listing_that_is_refused_keeps_its_error(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    """Errors of configuration are ValueErrors, as those of a page that cannot be read are."""
    proxy.troubles = [Trouble("answer", method="GET", status=301, body=refusal("PermanentRedirect"))]
    with pytest.raises(ConfigurationError):
        [status async for status in store.list(root)]


@pytest.mark.parametrize(("status", "error"), [(503, StoreThrottledError), (500, StoreUnavailableError)])
async def test_a_question_changes_nothing(
    store: S3Store, proxy: Proxy, root: StorePath, status: int, error: type[CommitterError]
) -> None:
    """An answer to HEAD has no code."""
    proxy.troubles = [Trouble("answer", method="HEAD", status=status)]
    with pytest.raises(error) as caught:
        await store.status(root / "file")
    assert caught.value.outcome == "unchanged"


async def test_how_long_to_wait_is_heard(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    proxy.troubles = [Trouble("answer", status=503, body=refusal("SlowDown"), headers={"Retry-After": "7"})]
    with pytest.raises(StoreThrottledError) as caught:
        await store.put(root / "file", b"1")
    assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("answer", ""),
        ("answer", "<ListBucketResult>"),
        ("answer", '<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult/>'),
        ("answer", "<Error/>"),
        ("lose answer", ""),
        ("cut answer", ""),
    ],
)
async def test_listings_that_cannot_be_read(
    store: S3Store, proxy: Proxy, root: StorePath, kind: str, body: str
) -> None:
    await store.put(root / "file", b"1")
    proxy.troubles = [Trouble(kind, method="GET", status=200, body=body)]  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailableError):
        _ = [one async for one in store.list(root)]


async def test_an_upload_without_a_date_is_not_taken_for_an_old_one(
    store: S3Store, proxy: Proxy, root: StorePath
) -> None:
    upload = f"<Upload><Key>{root.path[1:]}/file</Key><UploadId>x</UploadId></Upload>"
    body = f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"
    proxy.troubles = [Trouble("answer", method="GET", status=200, body=body)]
    with pytest.raises(StoreUnavailableError, match="when an upload was begun"):
        _ = [one async for one in store.list_uploads(root)]


async def test_a_part_number_beyond_what_a_marker_says(store: S3Store, proxy: Proxy, root: StorePath) -> None:
    """A server that repeats its marker would be listed for ever."""
    page = "<IsTruncated>true</IsTruncated>"
    for query, root_element in (("uploads", "ListMultipartUploadsResult"), ("uploadId", "ListPartsResult")):
        body = f"<{root_element}>{page}</{root_element}>"
        proxy.troubles = [Trouble("answer", method="GET", query=query, status=200, body=body, times=5)]
        listing = store.list_uploads(root) if query == "uploads" else store.list_parts(root / "file", "x")
        with pytest.raises(StoreUnavailableError, match="names no next page"):
            _ = [one async for one in listing]


async def test_cancelling_leaves_nothing_open(store: S3Store, root: StorePath) -> None:
    task = asyncio.ensure_future(store.put(root / "file", b"1"))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (await store.put(root / "file", b"2")).size == 1

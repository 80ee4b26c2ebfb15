"""Many files deleted in one call, each on its condition: what the store asks, hears, and does where it is not heard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape

import pytest

from committer.errors import (
    StoreConflictError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.testing.faults import Call, Fault, FaultyStore
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.jobs import Jobs
from tests.s3.proxy import Kind, Proxy, Trouble, refusal
from tests.s3.servers import Server
from tests.s3.test_s3_faults import paced_over

OLD = {f"p={number % 3}/old & <{number}>": b"old %d" % number for number in range(12)}
BATCHES = {"method": "POST", "query": "delete"}


@pytest.fixture
def store(proxied: S3Store) -> S3Store:
    return proxied


def kinds(failed: Mapping[StorePath, Exception]) -> dict[str, type[Exception]]:
    return {path.name: type(error) for path, error in failed.items()}


async def put_all(store: S3Store, paths: list[StorePath]) -> dict[StorePath, str]:
    return {path: (await store.put(path, path.name.encode())).identity or "" for path in paths}


async def put_and_change(store: S3Store, channel: BucketChannel, root: StorePath) -> dict[StorePath, str]:
    """`a` and `changed`, which another job has replaced since."""
    files = await put_all(store, [root / "a", root / "changed"])
    await channel.write("changed", b"of another job")
    return files


# --- What a probe finds ---------------------------------------------------------------------------------------------


async def test_nothing_is_deleted_before_the_conditions_were_tried(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel
) -> None:
    files = await put_all(store, [root / "a", root / "b"])
    assert not store.capabilities.conditional_batch_delete
    with pytest.raises(UnsupportedError):
        await store.delete_files(files)
    assert proxy.count("POST", "delete") == 0
    await store.probe(root)
    assert store.capabilities.conditional_batch_delete
    assert await store.delete_files(files) == {}
    assert await channel.files() == {}


async def test_a_service_that_ignores_them(moto_server: Server, root: StorePath) -> None:
    store = S3Store.open_for(root, options_for(moto_server))
    await store.probe(root)
    assert (store.capabilities.conditional_delete, store.capabilities.conditional_batch_delete) == (True, False)
    files = await put_all(store, [root / "a"])
    with pytest.raises(UnsupportedError):
        await store.delete_files(files)
    assert await BucketChannel(moto_server.client, root).files() == {"a": b"a"}
    await store.close()


SAYS_NOTHING = "<DeleteResult></DeleteResult>"


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("answer", 501, refusal("NotImplemented")),
        ("answer", 400, refusal("MalformedXML")),
        ("answer", 403, refusal("AccessDenied")),
        ("answer", 500, refusal("InternalError")),
        ("answer", 200, SAYS_NOTHING),
        ("answer", 200, "<html>fine</html>"),
        ("lose request", 0, ""),
        ("lose answer", 0, ""),
    ],
)
async def test_a_service_that_does_not_say_so_is_not_trusted(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel, kind: Kind, status: int, body: str
) -> None:
    """No job needs the ability: whatever the trial comes to, the probe goes on, and finds all else."""
    proxy.troubles = [Trouble(kind, status=status, body=body, **BATCHES)]  # type: ignore[arg-type]
    await store.probe(root)
    assert (store.capabilities.conditional_delete, store.capabilities.conditional_batch_delete) == (True, False)
    assert await channel.files() == {}


async def test_what_ignored_a_condition_is_not_trusted_again(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel
) -> None:
    """Behind one address there may be servers of several versions: which of them answers next no trial tells."""
    options = options_for(Server("proxy", proxy.url))
    await store.probe(root)
    files = await put_and_change(store, channel, root)
    proxy.troubles = [Trouble("answer", status=200, body=SAYS_NOTHING, **BATCHES)]  # type: ignore[arg-type]
    other = S3Store.open_for(root, options)
    await other.probe(root)
    # The same in every store of the process, for as long as it lives, whatever the next trial would come to.
    late = S3Store.open_for(root, options)
    await late.probe(root)
    for one in (store, other, late):
        assert (one.capabilities.conditional_delete, one.capabilities.conditional_batch_delete) == (True, False)
        with pytest.raises(UnsupportedError):
            await one.delete_files(files)
    await other.close()
    await late.close()
    assert await channel.files() == {"a": b"a", "changed": b"of another job"}


@pytest.mark.parametrize(
    ("trouble", "found"),
    [
        (Trouble("answer", status=500, method="DELETE", body=refusal("InternalError")), [(False, False)] * 2),
        (Trouble("answer", status=503, body=refusal("SlowDown"), **BATCHES), [(True, False), (True, True)]),  # type: ignore[arg-type]
    ],
)
async def test_many_are_deleted_on_conditions_only_where_one_is(
    store: S3Store, proxy: Proxy, root: StorePath, trouble: Trouble, found: list[tuple[bool, bool]]
) -> None:
    """Whatever a second probe finds: it tries again only what was unclear of the deletes of many."""
    proxy.troubles = [replace(trouble)]
    for expected in found:
        await store.probe(root)
        assert (store.capabilities.conditional_delete, store.capabilities.conditional_batch_delete) == expected


async def test_a_trial_that_sees_a_condition_ignored_ends_the_trust(moto_server: Server, root: StorePath) -> None:
    """`doctor`, in a process that commits."""
    store = S3Store.open_for(root, options_for(moto_server))
    [_found] = [one for one in await store.findings(root, scratch=root) if one.name == "conditional batch delete"]
    proxy = S3Store.open_for(root, options_for(moto_server))
    assert proxy._deletes.ignores_conditions
    await store.close()
    await proxy.close()


# --- What is asked and answered -------------------------------------------------------------------------------------


async def test_names_and_identities_that_one_call_cannot_hold(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel
) -> None:
    """They go by calls of their own, each on its condition and after a look."""
    await store.probe(root)
    bell, plain, anything = root / "bell\a", root / "plain", root / "anything"
    files = await put_all(store, [bell, plain, anything])
    before = len(proxy.seen)
    # As a record may say that is not to be trusted; to SeaweedFS an etag of `*` is that of any file.
    refused = await store.delete_files({**files, anything: "*"})
    assert {path: type(error) for path, error in refused.items()} == {anything: StorePreconditionError}
    assert await channel.files() == {"anything": b"anything"}
    sent = sorted((one.method, one.headers.get("if-match", "")) for one in proxy.seen[before:])
    assert sent == [("DELETE", f'"{files[bell]}"'), ("HEAD", ""), ("HEAD", ""), ("POST", "")]


@pytest.mark.parametrize("etag", ["0123", None])
async def test_names_that_were_not_deleted(store: S3Store, proxy: Proxy, root: StorePath, etag: str | None) -> None:
    await store.probe(root)
    errors = {
        "SlowDown": StoreThrottledError,
        "AccessDenied": StorePermissionError,
        "InternalError": StoreOutcomeUnknownError,
        "PreconditionFailed": StorePreconditionError,
        "ConditionalRequestConflict": StoreConflictError,
        "Whatever": StoreConflictError,
    }
    paths = {code: root / f"<é> & {code}" for code in ("NoSuchKey", *errors)}
    said = "".join(
        f"<Error><Key>{escape(path.path[1:])}</Key><Code>{code}</Code></Error>" for code, path in paths.items()
    )
    proxy.troubles = [Trouble("answer", status=200, body=f"<DeleteResult>{said}</DeleteResult>", **BATCHES)]  # type: ignore[arg-type]
    failed = await store.delete_files(dict.fromkeys(paths.values(), etag))
    assert kinds(failed) == {paths[code].name: error for code, error in errors.items()}


@pytest.mark.parametrize("kind", ["lose answer", "cut answer", "lose request", "fail after"])
async def test_a_call_whose_answer_is_lost_is_sent_again(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel, kind: Kind
) -> None:
    await store.probe(root)
    files = await put_and_change(store, channel, root)
    trouble = Trouble(kind, status=500, body=refusal("InternalError"), **BATCHES)  # type: ignore[arg-type]
    proxy.troubles = [trouble]
    sent = proxy.count("POST", "delete")
    assert kinds(await paced_over(store).delete_files(files)) == {"changed": StorePreconditionError}
    assert (trouble.times, proxy.count("POST", "delete") - sent) == (0, 2)
    assert await channel.files() == {"changed": b"of another job"}


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "MalformedXML")])
async def test_a_call_whose_conditions_are_not_known_is_not_sent_again(
    store: S3Store, proxy: Proxy, root: StorePath, channel: BucketChannel, status: int, code: str
) -> None:
    """One of several servers behind an address is older than the one that answered the trial."""
    await store.probe(root)
    files = await put_and_change(store, channel, root)
    proxy.troubles = [Trouble("answer", status=status, body=refusal(code), **BATCHES)]  # type: ignore[arg-type]
    assert kinds(await store.delete_files(files)) == {"changed": StorePreconditionError}
    assert await channel.files() == {"changed": b"of another job"}
    conditions = [one.headers.get("if-match", "") for one in proxy.seen if one.method == "DELETE"]
    assert max(conditions) == f'"{files[root / "a"]}"'
    sent = proxy.count("POST", "delete")
    assert not store.capabilities.conditional_batch_delete
    with pytest.raises(UnsupportedError):
        await store.delete_files(files)
    # Without conditions it can still delete many.
    assert await store.delete_files({root / "changed": None}) == {}
    assert proxy.count("POST", "delete") == sent + 1
    assert await channel.files() == {}


async def test_a_versioned_bucket_keeps_what_was_deleted(server: Server, root: StorePath) -> None:
    """A call without a version hides the current one, if that meets the condition; none is lost."""
    bucket = f"versioned{root.path.split('/')[1]}"
    server.client.create_bucket(Bucket=bucket)
    server.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    root = StorePath("s3", bucket, "/root")
    store = S3Store.open_for(root, options_for(server))
    await store.probe(root)
    assert store.capabilities.conditional_batch_delete
    files = await put_all(store, [root / "a", root / "changed"])
    server.client.put_object(Bucket=bucket, Key="root/changed", Body=b"of another job")
    for _ in range(2):
        refused = await store.delete_files(files)
        assert isinstance(refused.pop(root / "changed"), StorePreconditionError)
        assert not [error for error in refused.values() if not isinstance(error, StorePreconditionError)]
    assert [status.path.name async for status in store.list(root)] == ["changed"]
    versions = server.client.list_object_versions(Bucket=bucket, Prefix="root/")
    assert sorted(one["Key"] for one in versions["Versions"] if "probe" not in one["Key"]) == [
        "root/a", "root/changed", "root/changed",
    ]  # fmt: skip
    await store.close()


# --- Jobs that replace old files ------------------------------------------------------------------------------------


@pytest.fixture
async def jobs(proxy: Proxy, server: Server, root: StorePath, channel: BucketChannel, tmp_path: object) -> Jobs:
    for name, data in OLD.items():
        await channel.write(name, data)
    return Jobs("magic", Server("proxy", proxy.url, server.client), root, None)  # type: ignore[arg-type]


def deleted_one_by_one(proxy: Proxy) -> int:
    return sum(one.method == "DELETE" and "old" in one.path for one in proxy.seen)


def of_old_files(call: Call) -> bool:
    return call.operation == "delete_files" and "old" in call.path.name


async def replaced(
    jobs: Jobs, faults: Sequence[Fault] = (), before_call: Callable[[Call], Awaitable[None]] | None = None
) -> dict[str, bytes]:
    """The files after a job that replaces the old ones with one new."""
    store = S3Store.open_for(jobs.root, jobs.options)
    faulty = FaultyStore(store, list(faults), before_call=before_call)
    await jobs.commit({"p=0/new": b"new"}, store=faulty, conflict_mode="replace", superseded_scope="destination")
    for late in list(faulty.under_way):
        await late
    await store.close()
    files = await jobs.channel.files()
    del files["_SUCCESS"]
    return files


async def test_old_files_go_in_one_call(jobs: Jobs, proxy: Proxy) -> None:
    assert await replaced(jobs) == {"p=0/new": b"new"}
    assert deleted_one_by_one(proxy) == 0
    assert not [one for one in proxy.seen if one.method == "HEAD" and "old" in one.path]


async def test_old_files_go_one_by_one_where_the_service_ignores_conditions(
    moto_server: Server, root: StorePath
) -> None:
    channel = BucketChannel(moto_server.client, root)
    for name, data in OLD.items():
        await channel.write(name, data)
    assert await replaced(Jobs("magic", moto_server, root, None)) == {"p=0/new": b"new"}  # type: ignore[arg-type]


async def test_old_files_go_one_by_one_once_another_job_saw_a_condition_ignored(jobs: Jobs, proxy: Proxy) -> None:
    """Between the trial of this job and its deletes."""

    async def another_probes(call: Call) -> None:
        if of_old_files(call):
            proxy.troubles = [Trouble("answer", status=200, body=SAYS_NOTHING, **BATCHES)]  # type: ignore[arg-type]
            other = S3Store.open_for(jobs.root, jobs.options)
            await other.probe(jobs.root / "_temporary" / "other")
            await other.close()

    assert await replaced(jobs, before_call=another_probes) == {"p=0/new": b"new"}
    assert deleted_one_by_one(proxy) == len(OLD)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("answer", 501, "NotImplemented"),
        ("answer", 400, "MalformedXML"),
        ("answer", 403, "AccessDenied"),
        ("lose answer", 0, ""),
        ("lose request", 0, ""),
    ],
)
async def test_old_files_go_one_by_one_where_the_call_fails(
    jobs: Jobs, proxy: Proxy, kind: Kind, status: int, code: str
) -> None:
    times = 1 if code else 100

    async def once_it_is_probed(call: Call) -> None:
        if of_old_files(call):
            proxy.troubles = [Trouble(kind, status=status, body=refusal(code), times=times, **BATCHES)]  # type: ignore[arg-type]
        elif call.operation == "put" and call.path.name == "_SUCCESS":
            proxy.troubles = []

    assert await replaced(jobs, before_call=once_it_is_probed) == {"p=0/new": b"new"}


@pytest.mark.parametrize("fault", [None, "lost", "late", "again", "unanswered", "unavailable", "throttled"])
async def test_what_another_job_put_there_since_stays(jobs: Jobs, channel: BucketChannel, fault: str | None) -> None:
    """After the listing, before the call that deletes: also where that is lost, sent again, or arrives once more."""
    theirs = dict.fromkeys(list(OLD)[:2], b"of another job")

    async def put_theirs(call: Call) -> None:
        if of_old_files(call):
            for name, data in theirs.items():
                await channel.write(name, data)

    faults = [Fault(kind=fault, operation="delete_files")] if fault else []  # type: ignore[arg-type]
    assert await replaced(jobs, faults, put_theirs) == {"p=0/new": b"new", **theirs}

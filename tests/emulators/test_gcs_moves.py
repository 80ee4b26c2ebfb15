"""Moves, which are one step, and copies: rewrites in several calls, and compositions."""

from __future__ import annotations

import asyncio

import pytest
from google.cloud.storage import Bucket

from committer_testing.emulators.gcs import GcsEmulator, Settings, serve

from .google_clients import Wire, google_client, held, names, off_loop, refused, written

MEGABYTE = 1024 * 1024


async def test_a_move_keeps_data_and_metadata_and_is_a_new_generation(bucket: Bucket) -> None:
    generation = await written(bucket, "a/ü #1", b"data", stamp="j/1")
    before = await off_loop(lambda: bucket.get_blob("a/ü #1", retry=None))

    await off_loop(lambda: bucket.move_blob(bucket.blob("a/ü #1"), "b/c", if_generation_match=0, retry=None))

    found = await off_loop(lambda: bucket.get_blob("b/c", retry=None))
    assert await names(bucket) == ["b/c"]
    assert (found.metadata, found.crc32c, found.size, found.metageneration) == ({"stamp": "j/1"}, before.crc32c, 4, 1)
    assert found.generation > generation
    assert found.time_created > before.time_created


async def test_a_move_replaces_unless_told_otherwise(bucket: Bucket) -> None:
    await written(bucket, "a", b"1")
    generation = await written(bucket, "b", b"2")

    with refused(412, "conditionNotMet"):
        await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", if_generation_match=0, retry=None))
    assert await names(bucket) == ["a", "b"]
    await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", if_generation_match=generation, retry=None))
    assert (await names(bucket), await held(bucket, "b")) == (["b"], b"1")
    await written(bucket, "c", b"3")
    await off_loop(lambda: bucket.move_blob(bucket.blob("c"), "b", retry=None))
    assert (await names(bucket), await held(bucket, "b")) == (["b"], b"3")


@pytest.mark.parametrize(
    "option", ["if_source_generation_match", "if_source_metageneration_match", "if_source_generation_not_match"]
)
async def test_a_move_keeps_to_conditions_on_its_source(bucket: Bucket, option: str) -> None:
    generation = await written(bucket, "a")
    wrong = {option: generation if option.endswith("not_match") else 7}
    with refused(412, "conditionNotMet"):
        await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", retry=None, **wrong))
    assert await names(bucket) == ["a"]
    right = {option: 7 if option.endswith("not_match") else generation if "metag" not in option else 1}
    await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", retry=None, **right))
    assert await names(bucket) == ["b"]


async def test_a_move_needs_a_source_and_two_names(bucket: Bucket) -> None:
    with refused(404, "notFound"):
        await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "b", retry=None))
    await written(bucket, "a")
    with refused(400, "invalid"):
        await off_loop(lambda: bucket.move_blob(bucket.blob("a"), "a", retry=None))
    assert await names(bucket) == ["a"]


async def test_of_many_moves_to_one_name_one_wins(bucket: Bucket, wire: Wire) -> None:
    sources = [f"s{number}" for number in range(8)]
    for source in sources:
        await wire.insert(source, source.encode())
    path = "/storage/v1/b/data/o/{}/moveTo/o/target?ifGenerationMatch=0"
    answers = await asyncio.gather(*(wire("POST", path.format(source)) for source in sources))

    assert sorted(answer.status for answer in answers) == [200] + [412] * 7
    won = sources[[answer.status for answer in answers].index(200)]
    assert await held(bucket, "target") == won.encode()
    assert await names(bucket) == sorted({*sources, "target"} - {won})


async def test_a_rewrite_keeps_metadata_unless_it_brings_some(bucket: Bucket) -> None:
    await written(bucket, "a", b"data", stamp="j/1")

    assert await off_loop(lambda: bucket.blob("b").rewrite(bucket.blob("a"), retry=None)) == (None, 4, 4)
    other = bucket.blob("c")
    other.metadata = {"new": "1"}
    await off_loop(lambda: other.rewrite(bucket.blob("a"), retry=None))

    assert (await off_loop(lambda: bucket.get_blob("b"))).metadata == {"stamp": "j/1"}
    assert (await off_loop(lambda: bucket.get_blob("c"))).metadata == {"new": "1"}
    assert await names(bucket) == ["a", "b", "c"]


async def test_a_rewrite_may_take_several_calls() -> None:
    data = b"x" * (2 * MEGABYTE + 1)
    async with serve(Settings(rewrite_bytes=MEGABYTE)) as emulator:
        emulator.make_bucket("data")
        bucket = google_client(emulator).bucket("data")
        await written(bucket, "a", data)
        target, source = bucket.blob("b"), bucket.blob("a")

        token, done, total = await off_loop(lambda: target.rewrite(source, retry=None))
        assert (done, total) == (MEGABYTE, len(data))
        assert await names(bucket) == ["a"]
        with refused(410):
            await off_loop(lambda: bucket.blob("c").rewrite(source, token=token, retry=None))
        token, done, _ = await off_loop(lambda: target.rewrite(source, token=token, retry=None))
        assert done == 2 * MEGABYTE
        # A name that was taken since is a name that is taken.
        await written(bucket, "b", b"other")
        with refused(412, "conditionNotMet"):
            await off_loop(lambda: target.rewrite(source, token=token, if_generation_match=0, retry=None))
        assert await off_loop(lambda: target.rewrite(source, token=token, retry=None)) == (None, len(data), len(data))
        assert await held(bucket, "b") == data


async def test_a_token_of_a_rewrite_is_of_one_version_of_its_source(wire: Wire, gcs: GcsEmulator) -> None:
    await wire.insert("a", b"x" * (MEGABYTE + 1))
    path = f"/storage/v1/b/data/o/a/rewriteTo/b/data/o/b?maxBytesRewrittenPerCall={MEGABYTE}"
    answer = (await wire("POST", path)).json
    assert (answer["done"], answer["totalBytesRewritten"]) == (False, str(MEGABYTE))
    await wire.insert("a", b"y" * (MEGABYTE + 1))
    assert (await wire("POST", f"{path}&rewriteToken={answer['rewriteToken']}")).status == 410
    assert (await wire("POST", path.replace(str(MEGABYTE), "1000"))).reason == "invalid"


async def test_objects_are_composed(bucket: Bucket, wire: Wire) -> None:
    for name in ("1", "2"):
        await written(bucket, name, name.encode())
    made = bucket.blob("both")
    await off_loop(lambda: made.compose([bucket.blob("1"), bucket.blob("2")], if_generation_match=0, retry=None))

    assert await held(bucket, "both") == b"12"
    assert (made.component_count, made.md5_hash) == (2, None)
    wrong = {"sourceObjects": [{"name": "1", "objectPreconditions": {"ifGenerationMatch": "7"}}]}
    assert (await wire("POST", "/storage/v1/b/data/o/x/compose", wrong)).reason == "conditionNotMet"
    missing = {"sourceObjects": [{"name": "3"}]}
    assert (await wire("POST", "/storage/v1/b/data/o/x/compose", missing)).reason == "notFound"
    many = {"sourceObjects": [{"name": "1"}] * 33}
    assert (await wire("POST", "/storage/v1/b/data/o/x/compose", many)).reason == "invalid"
    assert (await wire("POST", "/storage/v1/b/data/o/x/compose", {})).reason == "required"


async def test_a_service_without_moves_says_so() -> None:
    for status in (400, 404, 501):
        async with serve(Settings(has_move=False, missing_move_status=status)) as emulator:
            emulator.make_bucket("data")
            bucket = google_client(emulator).bucket("data")
            await written(bucket, "a")
            with refused(status, "notImplemented"):
                await off_loop(lambda bucket=bucket: bucket.move_blob(bucket.blob("a"), "b", retry=None))
            assert await names(bucket) == ["a"]

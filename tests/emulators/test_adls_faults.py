"""Faults on demand, the rate limit, counters and the request log, steered over HTTP as another process would."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.storage.filedatalake.aio import FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator, Settings, serve

from .clients import client, names, refused, write


async def control(emulator: AdlsEmulator, method: str, call: str, body: Any = None, status: int = 200) -> Any:
    url = f"{emulator.url.rpartition('/')[0]}/_control/{call}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_a_lost_response_comes_after_the_effect(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    file = await write(files, "file")
    await control(emulator, "POST", "faults", {"kind": "reset-after", "operation": "rename", "count": 1})

    # aiohttp, which the official client sends through, repeats a PUT by itself when a connection it kept is dropped:
    # what its user gets to see is that the source is gone.
    with refused(404, "SourcePathNotFound"):
        await file.rename_file("data/moved")

    assert await names(files) == ["moved"]
    tries = await control(emulator, "GET", "requests?operation=rename")
    assert [(entry["status"], entry["faults"]) for entry in tries] == [(0, ["reset-after"]), (404, [])]
    assert tries[0]["client_request_id"] == tries[1]["client_request_id"]


@pytest.mark.parametrize("kind", ["reset", "error", "error-after"])
async def test_a_fault_comes_before_or_after_the_effect(
    files: FileSystemClient, emulator: AdlsEmulator, kind: str
) -> None:
    file = await write(files, "file")
    # A reset twice: see above.
    fault = {"kind": kind, "status": 503, "code": "ServerBusy", "retry_after": "7", "operation": "rename", "count": 2}
    await control(emulator, "POST", "faults", fault)
    with pytest.raises((HttpResponseError, ServiceRequestError, ServiceResponseError)) as caught:
        await file.rename_file("data/moved")
    assert await control(emulator, "DELETE", "faults") == []
    assert await names(files) == (["moved"] if kind == "error-after" else ["file"])
    if isinstance(caught.value, HttpResponseError):
        assert caught.value.response is not None
        assert (caught.value.status_code, caught.value.response.headers["Retry-After"]) == (503, "7")


@pytest.mark.parametrize("kind", ["latency", "latency-after"])
async def test_latency_comes_before_or_after_the_effect(
    files: FileSystemClient, emulator: AdlsEmulator, kind: str
) -> None:
    await control(emulator, "POST", "faults", {"kind": kind, "seconds": 30, "operation": "create-file", "count": 1})

    creating = asyncio.create_task(files.create_file("file"))
    while not emulator.conduct.faults[0].hits:
        await asyncio.sleep(0.01)
    done = emulator.namespace.find("data", "file") is not None
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)

    assert done is (kind == "latency-after")


async def test_faults_choose_by_operation_prefix_and_count(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    fault = {"kind": "error", "operation": "create-file", "path_prefix": "data/out/", "skip": 1, "count": 2}
    await control(emulator, "POST", "faults", [fault])

    await files.create_file("elsewhere")
    await files.create_directory("out/directory")
    await files.create_file("out/skipped")
    for name in ("out/1", "out/2"):
        with refused(500, "InternalError"):
            await files.create_file(name)
    await files.create_file("out/3")

    assert (await control(emulator, "GET", "faults"))[0]["hits"] == 2
    assert await names(files) == ["elsewhere", "out", "out/3", "out/directory", "out/skipped"]


async def test_a_fault_may_hit_the_first_try_of_each_request(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    await control(emulator, "POST", "faults", {"kind": "error", "operation": "create-file", "per_request": True})

    for name in ("1", "2"):
        with refused(500, "InternalError"):
            await files.create_file(name, client_request_id=f"request-{name}")
        await files.create_file(name, client_request_id=f"request-{name}")

    assert await names(files) == ["1", "2"]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "flood"},
        {"kind": "error", "statu": 500},
        {"kind": "error", "count": "many"},
        {"kind": "error", "count": -1},
        {"kind": "error", "operation": 7},
        {},
        None,
        "error",
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(emulator: AdlsEmulator, fault: Any) -> None:
    assert "error" in await control(emulator, "POST", "faults", fault, status=400)
    assert await control(emulator, "GET", "faults") == []


async def test_an_unknown_control_call_is_said_to_be_one(emulator: AdlsEmulator) -> None:
    await control(emulator, "GET", "nothing", status=404)
    await control(emulator, "POST", "rate", {"rate": "fast"}, status=400)
    await control(emulator, "GET", "requests?color=red", status=400)


# --- The rate limit -----------------------------------------------------------------------------------------------


async def test_what_comes_above_the_rate_is_told_to_wait() -> None:
    async with serve(Settings(rate=20, burst_seconds=0.1, retry_after=3)) as emulator, client(emulator) as service:
        files = service.get_file_system_client("data")
        emulator.namespace.create_filesystem("data", {})
        answers = await asyncio.gather(
            *(files.create_file(str(number)) for number in range(12)), return_exceptions=True
        )

        throttled = [answer for answer in answers if isinstance(answer, HttpResponseError)]
        assert throttled
        assert {(error.status_code, error.error_code) for error in throttled} == {(503, "ServerBusy")}
        assert {error.response.headers["Retry-After"] for error in throttled if error.response} == {"3"}
        counters = await control(emulator, "GET", "counters")
        assert (counters["served"], counters["throttled"]) == (12 - len(throttled), len(throttled))
        assert len(emulator.namespace.filesystem("data").root.children or ()) == counters["served"]

        # Lifted while it runs.
        await control(emulator, "POST", "rate", {"rate": 0})
        await asyncio.gather(*(files.create_file(f"more-{number}") for number in range(30)))


async def test_the_rate_holds_over_time_by_the_servers_own_counters() -> None:
    rate = 200
    token = {"Authorization": "Bearer a.b.c"}
    settings = Settings(rate=rate, bearer_tokens=frozenset({"a.b.c"}))
    async with serve(settings) as emulator, aiohttp.ClientSession(headers=token) as session:
        emulator.namespace.create_filesystem("data", {})

        async def ask(until: float) -> None:
            while time.monotonic() < until:
                async with session.head(f"{emulator.url}/data?resource=filesystem") as answer:
                    assert answer.status in {200, 503}

        started = time.monotonic()
        await asyncio.gather(*(ask(started + 1.0) for _ in range(8)))
        elapsed = time.monotonic() - started
        counters = await control(emulator, "GET", "counters")

    assert counters["served"] <= rate * (elapsed + settings.burst_seconds) + 1
    assert sum(second["served"] for second in counters["seconds"]) == counters["served"]
    assert sum(second["throttled"] for second in counters["seconds"]) == counters["throttled"]


# --- The log ------------------------------------------------------------------------------------------------------


async def test_requests_are_remembered_with_who_sent_them_and_no_secret(
    files: FileSystemClient, emulator: AdlsEmulator
) -> None:
    file = await write(files, "file")
    await file.rename_file("data/moved", client_request_id="ji-1", user_agent="st-2")
    with refused(404, "SourcePathNotFound"):
        await file.rename_file("data/moved")
    done, failed = await control(emulator, "GET", "requests?operation=rename")
    assert (done["path"], done["source"], done["status"]) == ("data/moved", "/data/file", 201)
    assert (done["client_request_id"], done["user_agent"].partition(" ")[0]) == ("ji-1", "st-2")
    assert (failed["status"], failed["code"]) == (404, "SourcePathNotFound")
    async with aiohttp.ClientSession() as session:
        url = f"{emulator.url}/data/file?sv=2024-11-04&sig=SECRET"
        async with session.put(url, headers={"x-ms-rename-source": "/data/a?sv=2024-11-04&sig=SECRET"}) as answer:
            assert (answer.status, "SECRET" in await answer.text()) == (403, False)
    everything = await control(emulator, "GET", "requests")
    assert [entry["operation"] for entry in everything][:2] == ["create-filesystem", "create-file"]
    assert "SharedKey" not in str(everything)
    assert "SECRET" not in str(everything)
    assert len(await control(emulator, "GET", "requests?limit=1")) == 1
    assert await control(emulator, "GET", "requests?path_prefix=data/mo&status=201") == [done]
    assert await control(emulator, "DELETE", "requests") == []
    assert await control(emulator, "GET", "requests") == []

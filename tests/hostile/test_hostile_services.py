"""Whatever a service answers: errors are typed and true, calls end, terminals are safe, and no file is lost or added."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

import committer
from committer.cli import main
from committer.cli.text import Exit
from committer.errors import CommitterError, JobNotFoundError, JobRolledBackError, JobUndecidedError
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stores.http import HttpClient
from tests.hostile.modes import MODES
from tests.hostile.scene import (
    CHOICES,
    Background,
    NoWaits,
    Service,
    background,
    decided_left,
    files_of,
    job_of,
    open_left,
    visible,
)
from tests.s3.servers import KEY
from tests.sweeps import sampled

SEED = 43
FILES = files_of("j")
LONGEST_S = 20.0
# As long an answer may stand still.
ANSWER_S = 0.1
_numbers = itertools.count()

Served = tuple[Background, Service]


@pytest.fixture(scope="module", params=["s3", "adls", "gs"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    url = request.getfixturevalue("moto_server").url if request.param == "s3" else ""
    with background(request.param, url) as served, use_runtime(NoWaits()):
        loop, service = served
        asyncio.run(old_jobs(service))
        yield loop, service


async def old_jobs(service: Service) -> None:
    """A destination that all tests only read."""
    await job_of(service.root / "old", service.direct, "done")
    await open_left(service.root / "old", service.direct, "open")
    await decided_left(service.root / "old", service.direct, "decided")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are in the environment; what was seen of a service in another test is forgotten."""
    monkeypatch.setenv("HOSTILE_KEY", KEY)
    monkeypatch.setattr("committer.stores.s3.deletes._ignoring", set())


def hits(seed: str) -> Callable[[int], bool]:
    """Which requests are hit: all, one of them, those from one on, or every other one."""
    chance = random.Random(seed)
    nth = chance.randrange(12)
    return chance.choice([
        lambda _number: True,
        lambda number: number == nth,
        lambda number: number >= nth,
        lambda number: chance.random() < 0.5,
    ])  # fmt: skip


def check_text(text: str) -> None:
    """Nothing in it moves a cursor, colours, or turns letters round."""
    bad = [one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"]
    assert not bad, f"{bad!r} in {text!r}"


Ask = Callable[[StorePath, dict[str, object]], Awaitable[object]]


async def plan(dest: StorePath, options: dict[str, object]) -> object:
    job = await committer.attach_job(spec_of(dest), storage_options=options)
    try:
        return await job.plan()
    finally:
        await job.close()


def spec_of(dest: StorePath) -> committer.JobSpec:
    return committer.JobSpec(
        destination=dest.uri, job_id="open", committer="magic" if dest.scheme == "s3" else "manifest"
    )


ASKED: dict[str, Ask] = {
    "list_jobs": lambda dest, options: committer.list_jobs(dest, storage_options=options, config=CHOICES),
    "validate": lambda dest, options: committer.validate(dest, storage_options=options, config=CHOICES),
    "load_record": lambda dest, options: committer.load_record(dest / "_SUCCESS", storage_options=options),
    "list_uploads": lambda dest, options: committer.list_uploads(dest, sizes=True, storage_options=options),
    "list_winners": lambda dest, options: committer.list_winners(dest, storage_options=options),
    "recover of an open job": lambda dest, options: committer.recover(dest, "open", storage_options=options),
    "recover of no job": lambda dest, options: committer.recover(dest, "none", storage_options=options),
    "plan": plan,
}
COMMANDS = {
    "jobs": ["jobs", "{}"],
    "jobs as JSON": ["jobs", "{}", "--output", "json"],
    "validate": ["validate", "{}"],
    "inspect a record": ["inspect", "{}/_SUCCESS"],
    "inspect": ["inspect", "{}"],
    "explain": ["explain", "{}"],
    "explain a job": ["explain", "{}", "--job", "decided"],
    "doctor": ["doctor", "{}"],
    "uploads": ["uploads", "list", "{}", "--sizes"],
    "plan": ["plan", "{}", "open"],
    "recover, not confirmed": ["recover", "{}", "decided"],
    "cleanup, not confirmed": ["cleanup", "{}", "--older-than", "0s"],
}
CHANGES: dict[str, Ask] = {
    "job": lambda dest, options: job_of(dest, options, "j"),
    "recover": lambda dest, options: committer.recover(dest, "j", config=CHOICES, storage_options=options),
    "roll back": lambda dest, options: committer.recover(
        dest, "j", rollback=True, force=True, config=CHOICES, storage_options=options
    ),
    "cleanup": lambda dest, options: committer.cleanup(dest, job_id="j", config=CHOICES, storage_options=options),
}


def asked(call: Awaitable[object]) -> CommitterError | None:
    """Runs a call and returns its error; None if it returned a result."""

    async def bounded() -> None:
        async with asyncio.timeout(LONGEST_S):
            await call

    try:
        with use_runtime(NoWaits()):
            asyncio.run(bounded())
    except CommitterError as error:
        check_error(error)
        return error
    return None


def check_error(error: CommitterError) -> None:
    check_text(str(error))
    for cause in error.causes:
        assert isinstance(cause, CommitterError), cause
        check_error(cause)


def case(served: Served, mode: str, operation: str, run: Callable[[], object]) -> None:
    """Runs an operation in a mode."""
    loop, service = served
    service.proxy.meet(MODES[mode].play, hits(f"{SEED} {mode} {operation}"))
    began = time.monotonic()
    try:
        with pytest.MonkeyPatch.context() as patched:
            limits = HttpClient.__init__.__kwdefaults__
            assert limits is not None
            patched.setitem(limits, "answer_s", ANSWER_S)
            patched.setitem(limits, "connect_s", ANSWER_S)
            run()
    except BaseException as error:
        error.add_note(f"{operation}, in the mode: {mode}")
        raise
    finally:
        service.proxy.meet(None)
        loop.run(service.proxy.settled())
    took = time.monotonic() - began
    assert took < LONGEST_S, f"{operation} took {took:.1f} s in the mode {mode}"


def some(operations: Sequence[str], seed: str) -> list[str]:
    """Half of the operations, other ones in each mode."""
    return random.Random(seed).sample(operations, len(operations) // 2)


def command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Runs a command, and looks at its exit code and what it printed."""
    capsys.readouterr()
    with use_runtime(NoWaits()):
        code = main(words)
    told = capsys.readouterr()
    assert code in list(Exit)
    assert "Traceback" not in told.out + told.err
    check_text(told.out + told.err)


def change(name: str, mode: str, served: Served) -> None:
    """Changes a destination of its own, and looks at it past the proxy."""
    service = served[1]
    dest = service.root / f"new{next(_numbers)}"
    with use_runtime(NoWaits()):
        if name in ("recover", "roll back"):
            asyncio.run(decided_left(dest, service.direct, "j"))
        elif name == "cleanup":
            asyncio.run(open_left(dest, service.direct, "j"))
    ended: list[CommitterError | None] = []
    case(served, mode, name, lambda: ended.append(asked(CHANGES[name](dest, service.options))))
    if not MODES[mode].lies:
        check_outcome(name, dest, service, ended[0])


@pytest.mark.parametrize("mode", sampled(MODES, 100, "modes"))
def test_all_that_a_person_asks_ends_as_it_must(mode: str, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    service = served[1]
    old, seed = service.root / "old", f"{SEED} {service.root.scheme} {mode}"
    for name in some([*ASKED], seed):
        case(served, mode, name, lambda ask=ASKED[name]: asked(ask(old, service.options)))  # type: ignore[misc]
    for name in some([*COMMANDS], seed):
        words = [*(word.format(old.uri) for word in COMMANDS[name]), *service.words]
        case(served, mode, f"committer {name}", lambda words=words: command(words, capsys))  # type: ignore[misc]
    for name in some([*CHANGES], seed):
        change(name, mode, served)
    # Past the proxy: nothing that was asked for a person changed anything.
    assert asyncio.run(visible(old, service.direct)) == files_of("done")


def check_outcome(name: str, dest: StorePath, service: Service, error: CommitterError | None) -> None:
    """Checks that the error's outcome is true, and that a recoverer past the proxy ends the job."""
    expected = {} if name in ("roll back", "cleanup") else FILES
    found = asyncio.run(visible(dest, service.direct))
    assert found.items() <= FILES.items()
    if error is None:
        assert found == expected
        return
    if name == "job":
        if error.outcome == "unchanged":
            assert found == {}, error
        if error.outcome == "committed":
            assert found == FILES, error
    if name == "cleanup":
        return
    try:
        with use_runtime(NoWaits()):
            report = asyncio.run(committer.recover(dest, "j", config=CHOICES, storage_options=service.direct))
        expected = FILES if report.success else {}
    except (JobUndecidedError, JobNotFoundError, JobRolledBackError) as ended:
        expected = {}
        if isinstance(ended, JobNotFoundError) and name == "roll back":
            return
    assert asyncio.run(visible(dest, service.direct)) == expected, error

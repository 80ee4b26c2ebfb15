"""Every error that a user can meet says what to do next; those without a step are listed here, with why."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import committer
from committer import errors
from committer.errors import CommitterError, MultipleError, RecordError, StoreError
from committer.stores.local import LocalStore
from committer.testing.faults import Call, FaultyStore

PACKAGE = Path(committer.__file__).parent
# What a store says of one path tells its caller in the engine, which says what to do. Records are of the engine's own
# making, or another program's: what a user does about one depends on where it was found.
OF_THE_ENGINE = (StoreError, RecordError, MultipleError)
FOR_USERS = {errors.DestinationNotFoundError, errors.StorePermissionError}

# A file, with part of the message or none, and why none is needed.
WITHOUT = {
    ("stores/memory/", ""): "a store for tests",
    ("testing/", ""): "for tests",
    ("stores/uploads.py", ""): "authors of committers read it",
    ("", "the path belongs to another store"): "authors of committers read it",
    ("", "names: a call takes"): "authors of committers read it",
    ("", "renames no "): "authors of committers read it: jobs ask what a store can do",
    ("stores/azure_blob/store.py", "no block can have"): "authors of committers read it",
    ("stores/azure_blob/store.py", "a block cannot be empty"): "authors of committers read it",
    ("stores/azure_blob/store.py", "two conditions"): "authors of committers read it",
    ("stores/s3/options.py", "the option {"): "the message says what the option must be",
    ("stores/azure/options.py", "is for another account or container"): "the message says what the option must be",
    ("stores/helpers.py", "neither renames nor deletes"): "authors of committers read it",
    ("stores/s3/store.py", "deletes whatever is there"): "authors of committers read it",
    ("stores/local/renames.py", ""): "jobs ask first, and go another way",
    ("stages/base.py", "ran already"): "authors of committers read it",
    ("layout.py", "the nonce of a setup"): "of a record or a spec: who decodes it says what to do",
    ("paths.py", ""): "of a URI in a record: who decodes it says what to do",
    ("records/manifest.py", ""): "of a URI in a record: who decodes it says what to do",
    ("committers/pending_sets.py", ""): "of a record: who decodes it says what to do",
    ("stages/facts.py", "job's own directory"): "preflight says what to do",
}


def test_errors_say_what_to_do_next() -> None:
    lacking = [site for site in _sites() if not any(_is(site, known) for known in WITHOUT)]
    assert not lacking, "\n".join(lacking)


def test_the_list_of_errors_without_a_step_is_in_use() -> None:
    sites = [*_sites(), "testing/"]
    assert not [known for known in WITHOUT if not any(_is(site, known) for site in sites)]


def _is(site: str, known: tuple[str, str]) -> bool:
    return site.startswith(known[0]) and known[1] in site


def _sites() -> Iterator[str]:
    """Where an error for users is made without a step: its file, line and message."""
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_for_users(node.func.id):
                given = {keyword.arg for keyword in node.keywords}
                # Without a name: all that the caller was given.
                if not given & {"next_step", None} and len(node.args) == 1:
                    yield f"{name}:{node.lineno}: {ast.unparse(node.args[0])}"


def _is_for_users(name: str) -> bool:
    if name == "refused":
        return True
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, CommitterError)):
        return False
    return kind in FOR_USERS or not issubclass(kind, OF_THE_ENGINE)


KINDS = [errors.StoreUnavailableError, errors.StoreOutcomeUnknownError, errors.StoreError, errors.RecordError]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["status", "list", "put", "read", "rename_file", "open_writer", "delete_file"])
async def test_whatever_a_store_says_users_have_a_step(call: str, kind: type[CommitterError], tmp_path: Path) -> None:
    async def fail(made: Call) -> None:
        if made.operation == call and armed:
            raise kind("an answer cannot be read", operation=call)

    async def told(work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except CommitterError as error:
            assert error.next_step, error
            assert "list_uploads" not in error.next_step

    async def write() -> None:
        async with job.task_attempt(task=0) as task, task.open("a") as file:
            await file.write(b"x")

    armed = False
    store = {"store": FaultyStore(LocalStore(), before_call=fail)}
    job = await committer.open_job(tmp_path, job_id="j", storage_options=store)
    armed = True
    await told(lambda: committer.open_job(tmp_path, storage_options=store).__aenter__())
    for work in (write, job.commit, job.abort, job.plan):
        await told(work)
    await told(lambda: committer.list_jobs(tmp_path, storage_options=store))
    await told(lambda: committer.recover(tmp_path, "j", storage_options=store))
    await told(lambda: committer.cleanup(tmp_path, job_id="j", storage_options=store))
    await job.close()

"""Answers `committer doctor`: checks whether a destination and Spark work.

All checks use their own directory below `_temporary`, which is removed afterwards with every parent that was created.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable

from committer.cli.explaining import chosen_committer
from committer.cli.output import Answer, Part, line, pairs, styled, table
from committer.cli.session import Common, Session
from committer.cli.text import Exit
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    StoreError,
    StoreExistsError,
    StoreNotEmptyError,
    StoreNotFoundError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.flow.shielded import run_shielded
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.readable import seconds
from committer.stores.base import Store
from committer.stores.examination import EXAMINATION, Finding, Verdict
from committer.stores.helpers import check_destination, status_or_none

_SKEW_BOUND_S = 5.0
_CLEAN_BOUND_S = 30.0
_STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


class Doctor:
    """Checks one destination; one object per run."""

    def __init__(self, store: Store, destination: StorePath) -> None:
        self._store = store
        self._destination = destination
        self._room = destination / TEMPORARY / f"doctor-{current_runtime().uuid()}"
        self._made: list[StorePath] = []
        self.checks: list[Finding] = []

    async def examine(self) -> list[Finding]:
        """Runs all checks in order, until one fails that later ones need."""
        if not await self._try("reach the store", self._reach):
            return self.checks
        try:
            if not await self._try("write", self._make_room):
                await self._ask_the_store(None)
            else:
                await self._try("create exclusively", self._create_exclusively)
                await self._try("rename replacing", self._rename_replacing)
                await self._try("rename a directory", self._rename_directory)
                await self._try("the store's own probe", self._probe)
                await self._ask_the_store(self._room / "trials")
                await self._try("clock", self._clock)
        finally:
            await run_shielded(self._clean, bound_s=_CLEAN_BOUND_S)
        return self.checks

    async def _try(self, name: str, check: Callable[[], Awaitable[tuple[Verdict, str]]]) -> bool:
        started, next_step = current_runtime().monotonic(), ""
        try:
            verdict, found = await check()
        except CommitterError as error:
            if check == self._reach and isinstance(error, ConfigurationError | DestinationNotFoundError):
                # Nothing was examined: the place does not exist, or an option or a package is missing.
                raise
            verdict, found, next_step = "failed", error.message, error.next_step
        took = current_runtime().monotonic() - started
        if took >= 1:
            found = f"{found} (took {seconds(took)})"
        self.checks.append(Finding(name, verdict, found, next_step))
        return verdict != "failed"

    async def _reach(self) -> tuple[Verdict, str]:
        started = current_runtime().monotonic()
        status = await status_or_none(self._store, self._destination)
        took = f"{(current_runtime().monotonic() - started) * 1000:.1f} ms"
        if status is None:
            return "ok", f"answers in {took}; the destination is not there yet"
        if not status.is_directory:
            await check_destination(self._store, self._destination, "doctor")
        return "ok", f"answers in {took}; the destination is there"

    async def _make_room(self) -> tuple[Verdict, str]:
        directory = self._room
        if self._store.capabilities.directories:
            while await status_or_none(self._store, directory) is None:
                self._made.append(directory)
                if directory.path == "/":
                    break
                directory = directory.parent
        await self._store.make_directory(self._room, parents=True)
        await self._store.put(self._room / "written", b"doctor")
        found = await self._store.read(self._room / "written", limit=100)
        return ("ok", "what is written is read back") if found == b"doctor" else ("failed", "something else is read")

    async def _create_exclusively(self) -> tuple[Verdict, str]:
        if not self._store.capabilities.exclusive_put:
            return "skipped", "the store cannot"
        path = self._room / "claimed"
        await self._store.put(path, b"first", exclusive=True)
        try:
            await self._store.put(path, b"second", exclusive=True)
        except StoreExistsError:
            kept = await self._store.read(path, limit=100)
            return ("ok", "the second create is refused") if kept == b"first" else ("failed", "the second one won")
        return "failed", "two creates of one file both succeed: jobs cannot be decided here"

    async def _rename_replacing(self) -> tuple[Verdict, str]:
        can = self._store.capabilities
        if not can.replacing_rename:
            more = ": existing_target=replace is refused or costs more" if can.atomic_file_rename else ""
            return "skipped", f"the store cannot{more}"
        source, target = self._room / "new", self._room / "replaced"
        await self._store.put(source, b"new")
        await self._store.put(target, b"old")
        await self._store.rename_file(source, target, replace=True)
        new = await self._store.read(target, limit=100)
        if new != b"new" or await status_or_none(self._store, source) is not None:
            return "failed", "the rename did something else"
        return "ok", "a file in the way is replaced in one step"

    async def _rename_directory(self) -> tuple[Verdict, str]:
        can = self._store.capabilities
        if not can.atomic_directory_rename:
            # Where nothing is renamed, a rollback ends uploads, which keeps other drivers out.
            more = ": no promotion of directories, rolling back needs --force" if can.atomic_file_rename else ""
            return "skipped", f"the store cannot{more}"
        source, target = self._room / "directory", self._room / "directory-renamed"
        await self._store.make_directory(source, parents=False)
        await self._store.put(source / "file", b"inside")
        await self._store.rename_directory(source, target)
        moved = await self._store.read(target / "file", limit=100)
        await self._store.make_directory(source, parents=False)
        try:
            await self._store.rename_directory(source, target)
        except StoreExistsError:
            if moved != b"inside":
                return "failed", "its file changed on the way"
            return "ok", "moved in one step; a directory in the way is kept"
        return "failed", "a directory in the way is replaced or entered"

    async def _probe(self) -> tuple[Verdict, str]:
        """Tests that a rename replaces nothing and keeps the file's identity, as far as the store renames."""
        await self._store.probe(self._room)
        return "ok", "what a job's setup proves holds"

    async def _ask_the_store(self, scratch: StorePath | None) -> None:
        able, about = EXAMINATION.of(self._store), self._destination
        # A directory that this check created says nothing of the one above, which others made.
        while about in self._made and about.path != "/":
            about = about.parent
        if able is not None:
            self.checks += await able.findings(about, scratch=scratch)

    async def _clock(self) -> tuple[Verdict, str]:
        earliest = current_runtime().now().timestamp()
        await self._store.put(self._room / "clock", b"clock")
        latest = current_runtime().now().timestamp()
        modified = (await self._store.status(self._room / "clock")).modified
        if modified is None:
            return "warning", "the store does not say when a file was written: no job has an age (cleanup --older-than)"
        # A clock of whole seconds is up to one second behind and correct.
        behind, ahead = earliest - 1.0 - modified, modified - latest
        skew = max(behind, ahead)
        if skew <= _SKEW_BOUND_S:
            return "ok", f"the store's and this machine's differ by less than {max(skew, 0) + 1:.0f} s"
        which = "behind" if behind > ahead else "ahead of"
        return "warning", f"the store's is {seconds(skew)} {which} this machine's: cleanup --older-than is off by that"

    async def _clean(self) -> None:
        try:
            await self._store.delete_directory(self._room, recursive=True)
            for directory in self._made[1:]:
                await self._store.delete_directory(directory, recursive=False)
        except (StoreNotEmptyError, StoreNotFoundError):
            # Another process uses it meanwhile.
            return
        except StoreError as error:
            self.checks.append(Finding("clean up", "failed", f"{self._room} may be left: {error.message}"))


async def doctor(session: Session, uri: str) -> Answer:
    """Checks a destination; exit code 1 if something fails that a commit relies on.

    A missing directory is created and removed; a missing bucket or container raises DestinationNotFoundError.
    """
    destination = StorePath.of(uri)
    async with session.store(destination) as store:
        checks = await Doctor(store, destination).examine()
        # After the checks: a probe may have found that the store can do less than assumed.
        name, why, lacking = chosen_committer(store)
    committer = "none" if lacking else name
    facts = pairs([("committer", committer), ("why", why)], indent=2)
    parts: list[Part] = [line(f"the store of {destination}", "bold"), facts]
    return _answered(destination, checks, parts, lacking=bool(lacking), committer=committer, why=why)


def _answered(
    destination: StorePath, checks: list[Finding], head: list[Part], *, lacking: bool = False, **more: object
) -> Answer:
    """Shows a table of findings, with the next steps below; `more` is for programs."""
    rows = [(check.name, styled(check.verdict, _STYLES[check.verdict]), check.found) for check in checks]
    steps = dict.fromkeys(check.next_step for check in checks if check.next_step)
    below = [line(""), *(line(f"next step: {step}") for step in steps)] if steps else []
    parts = [*head, line(""), table(("check", "verdict", "found"), rows), *below]
    ok = not (lacking or any(check.verdict == "failed" for check in checks))
    data = {"destination": str(destination), **more, "ok": ok, "checks": checks}
    return Answer(data, parts, Exit.OK if ok else Exit.FAILED)


def examine_with_spark(uri: str, common: Common) -> Answer:
    """Checks a destination with its own Spark session; exit code 1 if a write would be refused. Blocks."""
    if common.storage or common.option:
        raise ConfigurationError(
            "--storage and --option reach no session of Spark's",
            operation="doctor",
            next_step="set spark.hadoop.committer.storage.NAME, or the option's key after spark.hadoop., in"
            " spark-defaults.conf",
        )
    try:
        importlib.import_module("pyspark")
        examining = importlib.import_module("committer.spark.examining")
        places = importlib.import_module("committer.spark.sessions")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{error.name} is not installed for this Python",
            operation="doctor",
            next_step="pip install 'lake-committer[spark]'",
        ) from error
    # Resolved as the session does; a relative path belongs to this machine.
    resolved = places.at_default(uri, places.default_of_environment()) if uri.startswith("/") else uri
    destination = StorePath.of(resolved)
    return _answered(
        destination, examining.examine(destination), [line(f"Spark's own writers at {destination}", "bold")]
    )

"""The job that a command is about, and advice in its errors."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from committer.api.job import Job
from committer.api.job_opening import attach_job
from committer.cli.looking import Look, jobs_of_orphans, look_at, look_at_setup
from committer.cli.output import Answer, copyable, line, pairs
from committer.cli.session import Session
from committer.cli.surveying import refuse_classic, ways_out
from committer.cli.text import Exit, as_commands, command, commands_of, destination_above, told_destination, usage_error
from committer.committers.find_job import find_layout
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    DestinationNotFoundError,
    JobNotFoundError,
    JobUndecidedError,
    RecordError,
    TaskCommitsRequiredError,
    TaskMissingError,
)
from committer.flow.misuse import Opening
from committer.layout import check_job_id
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.load.winning_records import RIGHT_NUMBER
from committer.stores.helpers import CORRECT_THE_PATH

_LOOK_BOUND_S = 10.0
_LOOKING = ("look_at_job", "find_job")


@dataclass(frozen=True, slots=True)
class Target:
    """The job that a command is about; `job_attempt` is that of a Hadoop job, None for the highest."""

    session: Session
    uri: str
    job_id: str
    job_attempt: int | None = None

    def _checked_id(self) -> str:
        return check_job_id(self.job_id, "command line", f"`{command('jobs', self.uri)}`")

    def attach(self) -> Opening[Job]:
        """Attaches to the job."""
        session = self.session
        spec_or_uri: JobSpec | str = self.uri
        if self.job_attempt is not None:
            spec_or_uri = JobSpec.for_hadoop(self.uri, self.job_id, self.job_attempt, config=session.config)
        return attach_job(spec_or_uri, job_id=self.job_id, progress=session.display, **session.reach)

    async def look(self) -> Look:
        """Reads the job's state; raises the error that hides the job: no command continues."""
        async with self.session.store(StorePath.of(self.uri)) as store:
            layout = await find_layout(store, StorePath.of(self.uri), self._checked_id())
            look = await look_at_setup(store, await look_at(store, layout))
        if look.hidden is not None:
            raise look.hidden
        return look

    def command(self, name: str, *more: str) -> str:
        """Returns a command about this job."""
        return command(name, self.uri, self.job_id, *more)


async def left_entries(target: Target) -> bool:
    """Reports whether the job no longer exists and left entries: one listing, up to 3 calls per entry."""
    async with target.session.store(StorePath.of(target.uri)) as store:
        return target.job_id in await jobs_of_orphans(store, StorePath.of(target.uri))


def planned_end(target: Target, look: Look, what: str, will: str) -> Answer:
    """Makes the answer for a command's plan."""
    parts = [
        line(f"job {target.job_id} at {target.uri}", "bold"),
        pairs([("state", look.words), (f"{what} will", will)], indent=2),
    ]
    return Answer({"done": False, "job_id": target.job_id, "state": look.words, "will": will}, parts)


def _released_by(target: Target, owner: str) -> str:
    recover_it, back = command("recover", target.uri, owner), command("recover", target.uri, owner, "--rollback")
    return f"wait for job {owner}; if its driver is dead, finish it: `{recover_it}`, or roll it back: `{back}`"


def _step_of_missing_tasks(target: Target, error: TaskMissingError, *, recovering: bool) -> str:
    if error.outcome != "unchanged":
        # The job is decided: its tasks cannot run again, and it cannot be aborted.
        return error.next_step
    commit_it = f"commit it with their right number: `{target.command('commit', '--tasks', 'N')}`"
    right = commit_it if recovering else "give the right --tasks"
    abort_it = target.command("abort")
    if error.next_step.startswith(RIGHT_NUMBER):
        return f"{right}; to end it with nothing published: `{abort_it}`"
    return f"run the missing tasks again, or {right}; if they cannot run: `{abort_it}`"


@contextmanager
def guided(
    target: Target, *, recovering: bool = False, rollback: bool = False, from_attempts: bool = False
) -> Iterator[None]:
    """Adds a command to errors of the block that name none as their next step.

    The engine's own first step stays: the command alone would fail the same way again.

    Args:
        recovering: A driver began to commit the job and recorded the number of tasks.
        rollback: The job was to be rolled back: plain `recover` would publish it.
        from_attempts: The committed attempts were to win.
    """
    try:
        yield
    except DestinationBusyError as error:
        error.next_step = "; ".join(_released_by(target, owner) for owner in error.owners)
        raise
    except JobUndecidedError as error:
        commit_it, abort_it = ways_out(target.uri, target.job_id, error.delivery)
        error.next_step = f"if all its tasks are done, N of them: `{commit_it}`; else: `{abort_it}`"
        raise
    except TaskCommitsRequiredError as error:
        error.next_step = how_to_name_winners(target, from_attempts=from_attempts)
        raise
    except TaskMissingError as error:
        error.next_step = _step_of_missing_tasks(target, error, recovering=recovering)
        raise
    except (DestinationNotFoundError, JobNotFoundError) as error:
        above = destination_above(target.uri)
        if above:
            error.next_step = told_destination(above)
            raise
        if isinstance(error, DestinationNotFoundError):
            raise
        target.session.run(refuse_classic(target.session, target.uri, target.job_id))
        if not (error.next_step.startswith(CORRECT_THE_PATH) or commands_of(as_commands(error.next_step))):
            error.next_step = f"`{command('jobs', target.uri)}` shows the jobs that are there"
        if target.job_id and error.operation in _LOOKING and not error.next_step.startswith(CORRECT_THE_PATH):
            # Another operator may have just ended it.
            error.next_step += f"; if it is over, this says whether it committed: `{target.command('recover')}`"
        raise
    except CommitterError as error:
        advice = error.next_step
        # An invalid record, such as one for a differently spelled destination, stays invalid.
        is_whole = isinstance(error, RecordError) and advice
        if (
            error.outcome in ("unknown", "partial")
            and target.job_id
            and not is_whole
            and not commands_of(as_commands(advice))
        ):
            again = target.command("recover", *["--rollback"] * rollback)
            error.next_step = f"{advice}, then: `{again}`" if advice else f"`{again}`"
        elif not advice and target.job_id:
            error.next_step = f"`{command('jobs', target.uri)}` shows what exists there, and what ends it"
        raise


def how_to_name_winners(target: Target, *, from_attempts: bool = False) -> str:
    """Returns the next step for a job by message, with or without its messages.

    `from_attempts` means that this was tried, and several attempts of one task committed.
    """
    by_hand = target.command("commit", "--task-commits", "FILE")
    commit_it, abort_it = ways_out(target.uri, target.job_id, "message")
    unheard = (
        ""
        if from_attempts
        else f"without them, to take the attempts that committed if there is one of each of N tasks: `{commit_it}`; "
    )
    return f"with the winners' messages, one encoded TaskCommit a line: `{by_hand}`; {unheard}else: `{abort_it}`"


def interrupted(target: Target, doing: str, *, rollback: bool) -> Answer:
    """Returns the answer after Ctrl-C: the job's state, if a look of ten seconds can read it.

    Delayed requests may still take effect, so the answer promises nothing.
    """

    async def look() -> Look:
        async with asyncio.timeout(_LOOK_BOUND_S):
            return await target.look()

    try:
        state = target.session.run(look()).words
    except (CommitterError, TimeoutError, KeyboardInterrupt) as error:
        state = f"not known: {error or type(error).__name__}"
    removing = "part of the job may be removed"
    committing = "the job may be committing, and part of it may be visible"
    taken_back = ("the job may be rolling back, and part of it may be visible", target.command("recover", "--rollback"))
    words, follow_up = {
        "commit": (committing, target.command("recover")),
        "recover": taken_back if rollback else (committing, target.command("recover")),
        "settle": (committing, target.command("settle")),
        "abort": (removing, target.command("abort")),
        "cleanup": (removing, command("jobs", target.uri)),
    }[doing]
    parts = [line(f"interrupted: {words}", "bold red"), pairs([("state", state)], indent=2), copyable(follow_up)]
    data = {"done": False, "interrupted": doing, "job_id": target.job_id, "state": state, "next_step": follow_up}
    return Answer(data, parts, Exit.UNKNOWN)


def read_messages(path: str | None) -> list[TaskCommit] | None:
    """Reads task commit messages, one encoded `TaskCommit` per line; ``-`` is standard input."""
    if path is None:
        return None
    try:
        if path == "-":
            lines = sys.stdin.buffer.read().splitlines()
        else:
            with open(path, "rb") as file:
                lines = file.read().splitlines()
    except OSError as error:
        raise ConfigurationError(
            f"the file of task commit messages cannot be read: {error.strerror}",
            operation="command line",
            path=path,
            next_step="give a file of messages, one a line, or - for standard input",
        ) from error
    messages = []
    for number, text in enumerate(lines, 1):
        if text.strip():
            try:
                messages.append(TaskCommit.decode(text))
            except CommitterError as error:
                raise usage_error(
                    f"line {number} of {path} is no task commit message: {error.message}",
                    "give what TaskCommit.encode() returned, one a line",
                ) from error
    return messages


def older(text: str | None) -> timedelta | None:
    """Parses an age: ``90s``, ``30m``, ``12h``, ``7d``, ``2w``."""
    if text is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    try:
        if unit in units and number.isascii() and number[:1].isdigit():
            return timedelta(seconds=float(number) * units[unit])
    except (OverflowError, ValueError):
        pass
    raise usage_error(f"--older-than cannot be {text!r}", "a number and one of s, m, h, d, w: --older-than 7d")

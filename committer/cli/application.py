"""Commands of the command line, their arguments, and errors for missing ones."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from typing import Annotated, Any, Concatenate, Final, ParamSpec

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

import committer
from committer.cli import ending, explaining
from committer.cli import uploads as pending
from committer.cli.doctor import doctor as examine
from committer.cli.doctor import examine_with_spark
from committer.cli.inspecting import compare
from committer.cli.inspecting import inspect as read_record
from committer.cli.output import Answer, Screen
from committer.cli.session import Common, Session, choices_of, storage_options_of
from committer.cli.surveying import jobs as survey
from committer.cli.target import Target, guided, interrupted, older, read_messages
from committer.cli.text import Exit, as_commands, command, exit_of, reach_by, usage_error
from committer.errors import CommitterError, ConfigurationError
from committer.paths import StorePath
from committer.readable import clean

P = ParamSpec("P")

SEE_HELP: Final = "add --help to see what the command takes"
_JOB_ID: Final = "JOB-ID"


def lacking(app: App, error: MissingArgumentError, arguments: Sequence[str]) -> ConfigurationError | None:
    """Returns the error for a command line without a required positional argument; None for any other."""
    argument, name = error.argument, list(error.command_chain or ())
    if argument is None or argument.index is None or error.target is None or list(arguments[: len(name)]) != name:
        return None
    required = [one for one, of in signature(error.target).parameters.items() if of.default is of.empty]
    flags = [f"--{one.replace('_', '-')}" for one in required[argument.index :]]
    missing = [flag.lstrip("-").upper() for flag in flags if not _is_given(flag, arguments)]
    step = _whole_line(app, arguments, required[0], missing)
    return usage_error(f"{' '.join(name)} needs {' and '.join(missing)}", step)


def _is_given(flag: str, arguments: Sequence[str]) -> bool:
    return flag in arguments[:-1] or any(word.startswith(f"{flag}=") for word in arguments)


def _whole_line(app: App, arguments: Sequence[str], place: str, missing: list[str]) -> str:
    """Returns the line to type, if it would be valid and all of it may be shown.

    Its words are unchecked so far: a secret may be among them, in an option or in a URI.
    """
    try:
        # 0 is valid for a number and for a text.
        _command, bound, _rest = app.parse_args(
            [*arguments, *("0" for _ in missing)], exit_on_error=False, print_error=False
        )
        common = bound.arguments.get("common", Common())
        uri = "" if place.upper() in missing else bound.arguments[place]
        if uri:
            StorePath.of(uri)
        storage_options_of(uri, common.storage)
        choices_of(common.option)
    except (CycloptsError, CommitterError):
        return SEE_HELP
    line = clean(shlex.join(["committer", *arguments, *missing]))
    step = f"type this, with what is meant in place of {' and '.join(missing)}: `{line}`"
    if missing == [_JOB_ID]:
        reach_by(common.storage, typed=uri)
        step += f"; `{command('jobs', uri)}` shows the ids of the jobs that are there"
    return step


_HELP = "See, finish, roll back and clean up what jobs left at a data lake's destination."

Uri = Annotated[str, Parameter(help="The job's destination: a URI, or a path of this machine.")]
JobId = Annotated[str, Parameter(help="The job's id.")]
Yes = Annotated[bool, Parameter(help="Do it: without this the command only says what it would do.")]
Limit = Annotated[int, Parameter(help="How many entries of a list are shown as text; 20 when left out.")]
Messages = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        help="The winners' task commit messages, one encoded TaskCommit a line; - is stdin.",
        allow_leading_hyphen=True,
    ),
]
JobAttempt = Annotated[
    int | None, Parameter(help="The job attempt of a job that Hadoop set up; the highest one when left out.")
]

Tasks = Annotated[int | None, Parameter(help="How many tasks the job has; another number is refused.")]
FromAttempts = Annotated[
    bool,
    Parameter(
        help="Of a job by message whose driver is dead: the attempts that committed win, if there is exactly one of "
        "each of its --tasks."
    ),
]

app: App = App(
    name="committer",
    help=_HELP,
    version=f"committer {committer.__version__}",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
    help_epilogue="Exit codes: 0 ok, 1 failed or mismatch, 2 usage or not confirmed, 3 unknown outcome (run recover), "
    "4 not found, 5 busy, 6 validated, but not every file could be compared.",
)


@app.command
def inspect(path: str, *, limit: Limit = 20, common: Common = Common()) -> Answer:  # noqa: B008 - immutable
    """Show one record: task manifest, _SUCCESS, summary, setup, intent, decision, outcome, entry; Hadoop's too.

    Parameters
    ----------
    path:
        The record's URI or path.
    """
    session = Session(common, path)
    return session.run(read_record(session, path, limit))


@app.command
def explain(uri: Uri, *, job: str | None = None, common: Common = Common()) -> Answer:  # noqa: B008
    """Say which committer a job here would have and why, where it would work, and where each choice comes from.

    Parameters
    ----------
    job:
        Show the places of this job.
    """
    session = Session(common, uri)
    return session.run(explaining.explain(session, uri, job))


@app.command
def jobs(uri: Uri, *, common: Common = Common()) -> Answer:  # noqa: B008
    """List the jobs below a destination's _temporary, Hadoop's too, and the directories of no job."""
    session = Session(common, uri)
    return session.run(survey(session, uri))


@app.command
def plan(
    uri: Uri,
    job_id: JobId,
    *,
    task_commits: Messages = None,
    from_attempts: FromAttempts = False,
    tasks: Tasks = None,
    job_attempt: JobAttempt = None,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Say what a commit of a job would do now, and what would refuse it."""
    session = Session(common, uri)
    target = Target(session, uri, job_id, job_attempt)
    _check_winners(task_commits, tasks, from_attempts=from_attempts)
    with guided(target, from_attempts=from_attempts):
        return session.run(ending.plan(target, read_messages(task_commits), tasks, from_attempts=from_attempts))


@app.command
def commit(
    uri: Uri,
    job_id: JobId,
    *,
    task_commits: Messages = None,
    from_attempts: FromAttempts = False,
    tasks: Tasks = None,
    job_attempt: JobAttempt = None,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Commit a job whose tasks are done: one of this engine's, or one that Hadoop set up."""
    target = Target(Session(common, uri), uri, job_id, job_attempt)
    _check_winners(task_commits, tasks, from_attempts=from_attempts)
    messages = read_messages(task_commits)
    return _settled(target, "commit", ending.plan, ending.commit, yes, messages, tasks, from_attempts=from_attempts)


def _check_winners(task_commits: str | None, tasks: int | None, *, from_attempts: bool) -> None:
    """Refuses a command line that names the winners twice, or not their number."""
    if tasks is not None and tasks < 0:
        raise usage_error(f"--tasks cannot be {tasks}", "give the number of the job's tasks, 0 or more")
    if from_attempts and (task_commits is not None or tasks is None):
        raise usage_error(
            "--from-attempts needs --tasks, and goes without --task-commits",
            "--from-attempts --tasks N, N being the number of the job's tasks",
        )


@app.command
def recover(
    uri: Uri,
    job_id: JobId,
    *,
    rollback: Annotated[bool, Parameter(help="Roll back what was published; abort if undecided.")] = False,
    force: Annotated[
        bool,
        Parameter(
            help="You know that the old driver is dead. With --rollback: roll the job back also where the store cannot "
            "keep that driver out; if it lives, files of it can appear after the rollback. Without: commit an open job "
            "with the tasks that a listing finds; tasks that did not commit are missing from the output, and nothing "
            "says so. Of a job that is decided it changes nothing without --rollback."
        ),
    ] = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Finish a job whose driver died in its commit; safe at any time, again and again."""
    target = Target(Session(common, uri), uri, job_id)
    return _settled(target, "recover", ending.plan_recover, ending.run_recover, yes, rollback=rollback, force=force)


@app.command
def settle(
    uri: Uri,
    job_id: JobId,
    *,
    older_than: Annotated[
        str | None,
        Parameter(metavar="AGE", help="End an undecided job whose newest record is older: 90s, 30m, 12h, 7d, 2w."),
    ] = None,
    force: Annotated[bool, Parameter(help="You know that the driver of an undecided job is dead.")] = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """End an earlier run of a job before the job runs again: exit code 0 if committed, 4 if free to run.

    A decided job is finished, an undecided one removed: only if its driver is known to be dead, or it is old enough.
    """
    target = Target(Session(common, uri), uri, job_id)
    age = older(older_than)
    return _settled(target, "settle", ending.plan_settle, ending.run_settle, yes, older_than=age, force=force)


@app.command
def abort(uri: Uri, job_id: JobId, *, yes: Yes = False, common: Common = Common()) -> Answer:  # noqa: B008
    """Decide that a job is never committed, and remove it."""
    target = Target(Session(common, uri), uri, job_id)
    return _settled(target, "abort", ending.plan_abort, ending.run_abort, yes)


@app.command
def cleanup(
    uri: Uri,
    *,
    job: Annotated[str | None, Parameter(help="This job.")] = None,
    older_than: Annotated[
        str | None, Parameter(metavar="AGE", help="Jobs whose newest record is older: 90s, 30m, 12h, 7d, 2w.")
    ] = None,
    force: Annotated[
        bool,
        Parameter(
            help="Remove even a job that is decided to be committed: what it published stays; what it did not publish, "
            "and the old files that it moved aside, are deleted; even an outcome that is kept for a stream or a rerun: "
            "work that is repeated is published twice, or fails; and, named by --job, even another committer's "
            "directory: if that job is alive, it loses its output."
        ),
    ] = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Remove what dead jobs left below _temporary; an open job is first decided to be aborted."""
    age = older(older_than)
    if (job is None) == (age is None):
        raise usage_error(
            "cleanup takes one of --job and --older-than", "give the job, --job ID, or an age, --older-than 7d"
        )
    target = Target(Session(common, uri), uri, job or "")
    return _settled(target, "cleanup", ending.plan_clean, ending.run_clean, yes, older_than=age, force=force)


@app.command
def validate(uri: Uri, *, limit: Limit = 20, common: Common = Common()) -> Answer:  # noqa: B008
    """Compare a destination with its _SUCCESS."""
    session = Session(common, uri)
    return session.run(compare(session, uri, limit))


@app.command
def options(*, common: Common = Common()) -> Answer:  # noqa: B008
    """List every choice of a commit, with its default and its Hadoop key."""
    Session(common)
    return explaining.options()


uploads: App = App(
    name="uploads",
    help="See, count and abort uploads below a directory that were never completed (S3).",
    default_parameter=Parameter(negative=(), show_default=False),
)
app.command(uploads)

Directory = Annotated[
    str, Parameter(help="The directory, as a URI. Its name counts whole: nothing of dataset10 lies below dataset1.")
]
Age = Annotated[str | None, Parameter(metavar="AGE", help="Only those begun longer ago: 90s, 30m, 12h, 7d, 2w.")]


@uploads.command(name="list")
def list_uploads(
    uri: Directory,
    *,
    older_than: Age = None,
    sizes: Annotated[bool, Parameter(help="Ask for the parts and bytes of each, too: a call an upload.")] = False,
    limit: Limit = 20,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """List pending uploads: name, age, who began them; those of running jobs are among them."""
    session = Session(common, uri)
    return session.run(pending.list_(session, uri, older_than=older(older_than), sizes=sizes, limit=limit))


@uploads.command(name="abort")
def abort_uploads(
    uri: Directory,
    *,
    older_than: Age = None,
    everything: Annotated[
        bool, Parameter(name="--all", help="Whatever their age: no job runs there. What it wrote would be lost.")
    ] = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Abort pending uploads that are old enough; what was sent of their files is lost."""
    session = Session(common, uri)
    age = older(older_than)
    plan, planned = session.run(pending.plan_abort(session, uri, older_than=age, everything=everything))
    if not session.confirmed(plan, yes=yes):
        return session.unconfirmed(plan)
    done = session.run_long(pending.run_abort(session, uri, planned), lambda: pending.interrupted(uri))
    return replace(done, changed=True)


@uploads.command(name="expect")
def expect_uploads(
    uri: Directory,
    number: Annotated[int, Parameter(help="How many there must be.")],
    *,
    older_than: Age = None,
    limit: Limit = 20,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Count pending uploads; ends with exit code 1 when there are more or fewer."""
    session = Session(common, uri)
    return session.run(pending.expect(session, uri, number, older_than=older(older_than), limit=limit))


@app.command
def doctor(
    uri: Uri,
    *,
    spark: Annotated[
        bool,
        Parameter(
            negative="", help="Try instead whether a JVM of Spark's, and Python as that tells it, reach one place."
        ),
    ] = False,
    common: Common = Common(),  # noqa: B008
) -> Answer:
    """Try whether a destination can be reached and its store does what a commit relies on; leaves nothing behind."""
    session = Session(common, uri)
    return examine_with_spark(uri, common) if spark else session.run(examine(session, uri))


def _settled(
    target: Target,
    doing: str,
    plan: Callable[Concatenate[Target, P], Coroutine[Any, Any, Answer]],
    work: Callable[Concatenate[Target, P], Coroutine[Any, Any, Answer]],
    yes: bool,
    *args: P.args,
    **choices: P.kwargs,
) -> Answer:
    """Shows the plan of a command and runs it if confirmed; does not ask about a plan that would be refused.

    `plan` and `work` get the same arguments.
    """
    session = target.session
    rollback, from_attempts = bool(choices.get("rollback")), bool(choices.get("from_attempts"))
    with guided(target, recovering=doing == "recover", rollback=rollback, from_attempts=from_attempts):
        planned = session.run(plan(target, *args, **choices))
        if planned.code is Exit.FAILED and not yes:
            return replace(planned, notes=[*planned.notes, "nothing was done: it would be refused"])
        if planned.final and not yes:
            return planned
        if not session.confirmed(planned, yes=yes):
            return session.unconfirmed(planned)
        session.screen.remark(planned.notes)
        done = session.run_long(work(target, *args, **choices), lambda: interrupted(target, doing, rollback=rollback))
        return replace(done, changed=True)


def run(arguments: Sequence[str]) -> int:
    """Runs one command, prints its answer or error, and returns the exit code."""
    arguments = list(arguments)
    screen = Screen(json=_wants_json(arguments))
    answer: object = None
    try:
        answer = app(arguments or ["--help"], exit_on_error=False, print_error=False, result_action="return_value")
        if not isinstance(answer, Answer):
            # Help or version was printed.
            return Exit.OK if arguments else Exit.USAGE
        return screen.end(answer)
    except CycloptsError as error:
        usage = lacking(app, error, arguments) if isinstance(error, MissingArgumentError) else None
        screen.error(usage or usage_error(str(error).strip(), SEE_HELP), Exit.USAGE)
        return Exit.USAGE
    except CommitterError as error:
        code = exit_of(error)
        error.next_step = as_commands(error.next_step)
        screen.error(error, code)
        return code
    except KeyboardInterrupt:
        # The answer may be longer than a terminal's page, or its reader slow.
        changed = isinstance(answer, Answer) and answer.changed
        screen.remark([f"interrupted; {'what was confirmed is done' if changed else 'nothing was changed'}"])
        return 130


def _wants_json(arguments: list[str]) -> bool:
    return "--output=json" in arguments or ("--output", "json") in pairwise(arguments)

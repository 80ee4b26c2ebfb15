"""Set-up of a job: its directory under a name of its own, then a listing, then the exclusive `opened`."""

from __future__ import annotations

from tests.protocol_model.processes import LOST, Goto, Program, World, create_once, done, job_files, program, sure
from tests.protocol_model.table import Seen, classify


def read_records(world: World, directory: str) -> Program:
    """Reads the records of a directory: a listing, the contents, and last whether `setup` still exists."""
    faults = world.faults
    while True:
        names = yield ("look", directory)
        setup = "setup" in names
        if "setup-first" in faults and setup:
            setup = (yield ("read", directory + "setup")) is not None
        opened = (yield ("read", directory + "opened")) if "opened" in names else None
        unlisted = "setup-first" in faults
        decision = (yield ("read", directory + "decision")) if unlisted or "decision" in names else None
        outcome = (yield ("read", directory + "outcome")) if unlisted or "outcome" in names else None
        if "setup-first" not in faults and setup:
            setup = (yield ("read", directory + "setup")) is not None
        if setup == ("setup" in names) or "read-once" in faults:
            break  # else it was removed meanwhile: what is left is read again
    kept = "kept" in names
    if "outcome-is-kept" in faults and not setup and decision is None and opened == "open" and outcome == "committed":
        kept = True
    word = decision[0] if decision else None
    return Seen(setup, opened, word, outcome, kept, "inte" in names, bool(names)), decision


@program
def driver(world: World, nonce: str, driver: str) -> Program:
    """Sets a job up and, unless the driver has no name, commits it."""
    job, faults = world.jobs[nonce], world.faults
    directory = job.directory
    others: tuple[str, ...] = ()
    if "list-first" in faults:
        others = yield ("jobs", job.id)
    made = yield from make_directory(world, directory)
    if made != "ok":
        return made
    if "list-first" not in faults and "no-list" not in faults:
        others = yield ("jobs", job.id)
    if "kept-elsewhere" in faults and (yield ("names", f"kept-{job.id}")):
        return Goto("give_up", nonce, "committed before")
    others = tuple(other for other in others if other != nonce and "." not in other)
    return Goto("look_at_others", nonce, driver, others)


def make_directory(world: World, directory: str) -> Program:
    """Makes the job's directory: by one rename of a whole one, else by the put of `setup`, which is never repeated."""
    if world.kind.rename and not {"made-in-place", "parents"} & world.faults:
        new = directory[:-1] + ".new/"
        yield from done(("make", new))
        if (yield from sure(("rename directory", new, directory))) == "ok":
            return "ok"
        return (
            "ok" if "setup" in (yield ("look", directory)) else "given up"
        )  # an answer was lost; a cleanup was faster
    if "mark-repeated" in world.faults:
        answer = yield from sure(("mark", directory))
    else:
        answer = yield ("mark", directory)
    if answer == "ok" and world.kind.strict:
        answer = yield ("put", directory + "setup", 1)
    return "given up" if answer == LOST else "ok"  # this nonce is never used: the caller draws another


@program
def look_at_others(world: World, nonce: str, driver: str, others: tuple[str, ...]) -> Program:
    """Refuses where another job of the id is live or kept its outcome; closes what was not opened."""
    job = world.jobs[nonce]
    if not others:
        return Goto("open_job", nonce, driver)
    directory = f"{job.id}~{others[0]}/"
    seen, _ = yield from read_records(world, directory)
    standing = classify(seen)
    if standing == "arriving" and "no-close" not in world.faults:
        opened = yield from create_once(directory + "opened", "closed")
        standing = "open" if opened == "open" else "over"
    if standing not in {"arriving", "gone", "over"}:
        return Goto("give_up", nonce, "committed before" if standing == "kept" else "exists")
    return Goto("look_at_others", nonce, driver, others[1:])


@program
def open_job(world: World, nonce: str, driver: str) -> Program:
    """Creates `opened`; then tasks write. The driver goes on to the commit."""
    job = world.jobs[nonce]
    directory = job.directory
    opened = yield from create_once(directory + "opened", "open")
    if opened != "open":
        return Goto("give_up", nonce, "closed")
    files = tuple((source[len(directory) :], value) for source, _, value in job_files(world, job))
    made = "parents" if "parents" in world.faults else "subdirectories" if "made-in-place" in world.faults else ""
    record = (("task", 1),) if job.listing else ()
    answer = yield from sure(("fill", directory, files + record, made))
    if answer != "ok":
        return "gone"
    return Goto("commit", nonce, driver, 1) if driver else "open"


@program
def give_up(world: World, nonce: str, why: str) -> Program:
    """Removes the own directory of a set-up that was refused."""
    yield from remove_unopened(world, nonce)
    return why


def remove_unopened(world: World, nonce: str) -> Program:
    """Removes a directory that never was a job's."""
    directory = world.jobs[nonce].directory
    if world.kind.rename:
        yield from remove_directory(directory)
    else:
        yield from done(("delete", (directory + "setup",)))
        yield from done(("delete", (directory + "opened",)))


def remove_directory(directory: str) -> Program:
    """Renames a directory away, then deletes it."""
    removed = directory[:-1] + ".removed/"
    answer = yield from sure(("rename directory", directory, removed))
    yield from done(("delete tree", removed))
    if answer == "exists":  # left by a removal that died, below a directory that a delayed request made again
        yield from done(("rename directory", directory, removed))
        yield from done(("delete tree", removed))


@program
def attach(world: World, nonce: str, driver: str) -> Program:
    """A driver that joins a job which another one set up."""
    directory = world.jobs[nonce].directory
    if (yield ("read", directory + "opened")) != "open":
        return "not open"
    # A task whose create took effect late has no record: the file is there under an identity that it never learned.
    if (yield ("read", directory + "up1.0")) != nonce:
        return "no task committed"
    return Goto("commit", nonce, driver, 1)


@program
def task_again(world: World, nonce: str) -> Program:
    """A second attempt of the task: its files, its record in place of the first's, then a look for the decision."""
    job = world.jobs[nonce]
    files = job_files(world, job, attempt=2)
    for source, _, value in files:
        if (yield from sure(("put", source, value))) != "ok":
            return "failed"
    if (yield from sure(("put", job.directory + "task", 2))) != "ok":
        return "failed"
    if (yield ("read", job.directory + "decision")) is not None:
        return "failed"
    return "succeeded" if (yield ("read", job.directory + "setup")) is not None else "failed"

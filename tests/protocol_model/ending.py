"""The way back, removal, and what recover, rollback, abort and cleanup do with each directory of an id."""

from __future__ import annotations

from tests.protocol_model.processes import Decision, Goto, Program, World, create_once, done, program, sure
from tests.protocol_model.setting_up import read_records, remove_directory
from tests.protocol_model.table import ACTIONS, Seen, classify


def kept_names(world: World) -> tuple[str, ...]:
    """Returns the names that a kept outcome leaves in the job's directory."""
    if "outcome-is-kept" in world.faults:
        return ("outcome", "opened", ".")
    return ("kept", ".") if "kept-without-opened" in world.faults else ("kept", "opened", ".")


def forward_only(world: World, decision: Decision) -> bool:
    """Whether publishing replaces a file under its own name, by a store that keeps no second name of it."""
    if world.kind.rename or "undo-replaced" in world.faults:
        return False
    return bool({name for name, _ in decision[2]} & {target for _, target, _ in decision[3]})


def drop_entries(job_id: str, nonce: str) -> Program:
    """Deletes all entries of a job."""
    names = tuple(name for name, _ in (yield ("entries", f"{job_id}~{nonce}~")))
    if names:
        yield from done(("delete", names))


def remove(world: World, nonce: str, last: str, *, keeps: bool = False) -> Program:
    """Removes a job's directory, then its entries. Objects: `setup` first, the last word last."""
    job, faults = world.jobs[nonce], world.faults
    directory = job.directory
    if keeps:
        yield from keep(world, nonce)
    elif job.stays:
        yield from leave(world, directory)
    elif world.kind.rename:
        yield from remove_directory(directory)
    else:
        if "last-first" in faults:
            yield from done(("delete", (directory + last,)))
        if "delete-unconfirmed" in faults:
            yield ("delete", (directory + "setup",))
        else:
            yield from done(("delete", (directory + "setup",)))
        rest = tuple(name for name in (yield ("names", directory)) if name != directory + last)
        if "delete-unconfirmed" in faults:
            rest = tuple(name for name in rest if name != directory + "setup")
        if rest:
            yield from done(("delete", rest))
        yield from done(("delete", (directory + last,)))
    yield from drop_entries(job.id, nonce)


def keep(world: World, nonce: str) -> Program:
    """Empties a committed job's directory but for its outcome."""
    job, faults = world.jobs[nonce], world.faults
    directory = job.directory
    if "kept-elsewhere" in faults:
        yield from done(("put", f"kept-{job.id}-{nonce}", 1))
        if world.kind.rename:
            yield from remove_directory(directory)
        else:
            yield from done(("delete tree", directory))
        return
    if "outcome-is-kept" not in faults and (yield from sure(("put", directory + "kept", 1))) != "ok":
        return  # removed by force
    yield from leave(world, directory)
    yield from done(("delete tree", directory, kept_names(world)))


def leave(world: World, directory: str) -> Program:
    """Ends a job whose directory stays: deletes `setup`, then fences what drivers rename from there."""
    yield from done(("delete", (directory + "setup",)))
    if world.kind.rename and "no-fence-of-work" not in world.faults:
        yield from done(("fence", directory, "work", "succ"))


@program
def backward(world: World, nonce: str, driver: str, decision: Decision) -> Program:
    """Creates the outcome rolled-back, fences other drivers, undoes what was published, removes the directory."""
    job, kind, faults = world.jobs[nonce], world.kind, world.faults
    directory = job.directory
    outcome = yield from create_once(directory + "outcome", "rolled-back")
    if outcome is None:
        return "gone"
    if outcome == "committed":
        return Goto("finish", nonce, driver, decision)
    if (
        (not kind.strict or (job.outlasts and "no-kept-look" not in faults))
        and "no-look" not in faults
        and (yield ("read", directory + "setup")) is None
    ):
        yield from done(("delete", (directory + "outcome",)))
        return "gone"
    if "no-fence" not in faults:
        yield from done(("fence", directory, "tasks", "up"))
        if kind.rename:
            yield from done(("fence", directory, "superseded", "old"))
    return Goto("undo", nonce, driver, decision, 0)


@program
def undo(world: World, nonce: str, driver: str, decision: Decision, number: int) -> Program:
    """Takes published files from the destination one after the other, then puts the old ones back."""
    kind, directory, faults = world.kind, world.jobs[nonce].directory, world.faults
    _, marker, old, files, _ = decision
    if number < len(files):
        _, target, value = files[number]
        if (yield ("read", target)) == value:
            if kind.rename:  # one name for all drivers: the first move bars the others
                aside = f"{directory}undone{number}" + (driver if "undone-each" in faults else "")
                yield from done(("move", target, aside, None if kind.strict else value))
            elif kind.conditions:
                yield from done(("delete_if", target, value))
            else:
                yield from done(("delete", (target,)))
        return Goto("undo", nonce, driver, decision, number + 1)
    if kind.rename:
        back = "" if "no-fence" in faults else "fenced-"
        for index, (name, _) in enumerate(old):
            yield from done(("move", f"{directory}{back}old{index}", name))
        aside = f"{directory}{back}old-SUCCESS"
        if (yield ("read", aside)) not in {None, "bar"}:
            yield from done(("move", aside, "D/_SUCCESS"))
    elif marker is not None:
        yield from give_back(world, marker)
    return Goto("remove_rolled_back", nonce)


@program
def remove_rolled_back(world: World, nonce: str) -> Program:
    """Removes the directory of a job that was rolled back."""
    yield from remove(world, nonce, "outcome")
    return "rolled back"


def give_back(world: World, marker: str) -> Program:
    """Puts the old marker back, or in place of itself, with another etag: no delayed delete fits it."""
    again = marker + ("" if "same-marker" in world.faults else " ")
    while world.kind.conditions and "give-back-absent" not in world.faults:
        standing = yield ("read", "D/_SUCCESS")
        if standing not in {None, marker}:
            return
        if (yield ("put_if", "D/_SUCCESS", again, standing)) == "ok":
            return
    yield from done(("create", "D/_SUCCESS", again))


@program
def operator(world: World, job_id: str, wish: str) -> Program:
    """Ends each directory of an id that one listing shows."""
    nonces = yield ("jobs", job_id)
    return Goto("each", job_id, wish, nonces, ())


@program
def each(
    world: World,
    job_id: str,
    wish: str,
    nonces: tuple[str, ...],
    results: tuple[tuple[str, object], ...],
    result: object = None,
) -> Program:
    """Goes on with the next directory."""
    yield from ()
    if result is not None:
        results = (*results, (nonces[0], result))
        nonces = nonces[1:]
    if not nonces:
        return results
    return Goto("call", ("end_directory", (job_id, nonces[0], wish)), ("each", (job_id, wish, nonces, results)))


@program
def end_directory(world: World, job_id: str, nonce: str, wish: str) -> Program:
    """Does with one directory what the table says."""
    if "." in nonce:  # what a removal or a set-up left that died
        if nonce.endswith(".removed"):
            yield from done(("delete tree", f"{job_id}~{nonce}/"))
        else:
            yield from remove_directory(f"{job_id}~{nonce}/")
        yield from drop_entries(job_id, nonce.partition(".")[0])
        return "removed"
    seen, decision = yield from read_records(world, f"{job_id}~{nonce}/")
    return Goto("act", job_id, nonce, wish, seen, decision)


@program
def act(world: World, job_id: str, nonce: str, wish: str, seen: Seen, decision: Decision | None) -> Program:
    """Does what the table says of the records that were read."""
    directory, name = f"{job_id}~{nonce}/", "operator-" + wish
    standing = classify(seen)
    action = ACTIONS[standing][wish]
    if action == "close":
        opened = yield from create_once(directory + "opened", "closed")
        if opened == "open":
            return Goto("end_directory", job_id, nonce, wish)
        action = "remove"
    if action == "decide":
        return Goto("commit", nonce, name, 1)
    if action == "abort":
        decision = yield from create_once(directory + "decision", ("abort", name))
        if decision is None:
            return "gone"
        strict = world.kind.strict and (not world.jobs[nonce].outlasts or "no-kept-look" in world.faults)
        if not strict and "no-look" not in world.faults:
            if (yield ("read", directory + "setup")) is None:
                yield from done(("delete", (directory + "decision",)))
                return "gone"
        if decision[0] != "abort":
            return Goto("end_directory", job_id, nonce, wish)
        return Goto("remove_aborted", nonce)
    if action == "remove":
        if standing == "aborted":
            return Goto("remove_aborted", nonce)
        if "outcome-is-kept" in world.faults and (standing, seen.outcome, world.jobs[nonce].kept) == (
            "over",
            "committed",
            True,
        ):
            yield from keep(world, nonce)
            return "kept"
        yield from remove_rest(world, job_id, nonce)
        return standing
    if action == "undo" and decision and standing == "decided" and forward_only(world, decision):
        action = "publish"
    if action in {"publish", "finish"}:
        return Goto("forward", nonce, name, decision)
    if action == "undo":
        return Goto("backward", nonce, name, decision)
    if standing == "kept" and set((yield ("names", directory))) - {directory + left for left in kept_names(world)}:
        yield from done(
            ("delete tree", directory, kept_names(world))
        )  # what a removal that died, or a stale driver, left beside it
        yield from drop_entries(job_id, nonce)
    return {"report": standing, "refuse": "refused: " + standing}[action]


@program
def remove_aborted(world: World, nonce: str) -> Program:
    """Removes the directory of an aborted job."""
    yield from remove(world, nonce, "decision")
    return "aborted"


def remove_rest(world: World, job_id: str, nonce: str) -> Program:
    """Removes what a removal that died has left."""
    directory = f"{job_id}~{nonce}/"
    if world.kind.rename:
        yield from remove_directory(directory)
    else:
        words = tuple(directory + word for word in ("decision", "outcome", "opened"))
        yield from done(("delete", (directory + "setup",)))
        rest = tuple(name for name in (yield ("names", directory)) if name not in words)
        if rest:
            yield from done(("delete", rest))
        yield from done(("delete", words))
    yield from drop_entries(job_id, nonce)


@program
def ended_then(world: World, job_id: str, wish: str, nonce: str, name: str) -> Program:
    """An operator ends an id; then a driver sets a job of that id up."""
    yield from ()
    return Goto("call", ("operator", (job_id, wish)), ("driver_after", (nonce, name)))


@program
def driver_after(world: World, nonce: str, name: str, result: object) -> Program:
    """A driver that begins after an operator ended."""
    yield from ()
    return Goto("driver", nonce, name)

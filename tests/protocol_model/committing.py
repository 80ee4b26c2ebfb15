"""Commit of a job by any number of drivers: intent, entry, listing, decision, publishing, outcome, `_SUCCESS`."""

from __future__ import annotations

from tests.protocol_model.ending import drop_entries, forward_only, remove
from tests.protocol_model.processes import (
    LOST,
    Decision,
    Goto,
    Program,
    World,
    create_once,
    done,
    job_files,
    program,
    sure,
)

Scope = tuple[tuple[str, ...], tuple[str, ...]]  # directories written, subtrees replaced


def meet(one: Scope, other: Scope) -> bool:
    """Whether a subtree that one scope replaces is, holds or lies below a directory of the other."""

    def replaces_of(a: Scope, b: Scope) -> bool:
        return any(x.startswith(y) or y.startswith(x) for x in a[1] for y in (*b[0], *b[1]))

    return replaces_of(one, other) or replaces_of(other, one)


def entry_of(world: World, nonce: str, driver: str, attempt: int) -> str:
    """Returns the name of an entry: one a try of a driver."""
    if "shared-entry" in world.faults:
        driver = "x"
    if "entry-reused" in world.faults:
        attempt = 1
    return f"C/{world.jobs[nonce].id}~{nonce}~{driver}~{attempt}"


def busy(world: World, nonce: str, scope: Scope) -> Program:
    """Returns whether an entry of another live job stands whose scope meets this one."""
    for name, other in (yield ("entries", "")):
        job_id, other_nonce = name[2:].split("~")[:2]
        if other_nonce == nonce or not meet(scope, other):
            continue
        directory = f"{job_id}~{other_nonce}/"
        if (yield ("read", directory + "opened")) != "open":
            continue
        if (yield ("read", directory + "setup")) is not None:
            return True
        if world.kind.rename and "setup-alone-counts" not in world.faults:
            # a driver that stands still can rename what it has there
            if (yield ("read", directory + "work")) is not None:
                return True
    return False


@program
def commit(world: World, nonce: str, driver: str, attempt: int) -> Program:
    """Brings a job to its decision, in one of several tries."""
    job, faults = world.jobs[nonce], world.faults
    directory = job.directory
    names = yield ("look", directory)
    if "setup" not in names:
        return "gone"
    decision = (yield ("read", directory + "decision")) if "decision" in names else None
    if decision is not None:
        return Goto("decided", nonce, driver, decision)
    if (yield from sure(("put", f"{directory}intent-{driver}-{attempt}", 1))) != "ok":
        return "gone"
    winner: int | None = 1
    if job.listing:
        winner = yield ("read", directory + "task")
        if "freeze" in faults:
            yield from done(("move", directory + "task", f"{directory}frozen-{driver}"))
    scope: Scope = (job.parts, () if "narrow-scope" in faults else job.replaces)
    entry = entry_of(world, nonce, driver, attempt)
    old: tuple[tuple[str, str], ...] = ()
    if "old-files-early" in faults and job.replaces:
        old = yield ("files", job.replaces)
    if "entry-late" not in faults:
        if "entry-rewritten" in faults:  # first with what is known at once, then with the whole scope
            yield from done(("put", entry, (job.parts, ())))
        yield from done(("put", entry, scope))
    found = yield from busy(world, nonce, scope)
    if "entry-late" in faults:
        yield from done(("put", entry, scope))
    if found:
        yield from done(("delete", (entry, f"{directory}intent-{driver}-{attempt}")))
        return Goto("commit", nonce, driver, attempt + 1) if attempt < job.tries else "busy"
    if job.replaces and "old-files-early" not in faults:
        old = yield ("files", job.replaces)
    old = tuple((name, value) for name, value in old if value.split("#")[0] != nonce)
    marker = yield ("read", "D/_SUCCESS")
    files = job_files(world, job, winner) if winner is not None else ()
    return Goto("decide", nonce, driver, attempt, ("commit", marker, old, files, job.replaces))


@program
def decide(world: World, nonce: str, driver: str, attempt: int, wanted: Decision) -> Program:
    """Creates the decision, or reads the one that stands."""
    directory, faults = world.jobs[nonce].directory, world.faults
    name = directory + "decision"
    decision: Decision | None
    if "plain-decision" in faults:
        yield from done(("put", name, wanted))
        decision = wanted
    elif "withdraw-unknown" in faults:
        answer = yield ("create", name, wanted)
        decision = wanted if answer == "ok" else (yield ("read", name))
        if decision is None:
            yield from done(("delete", (entry_of(world, nonce, driver, attempt),)))
            return "gone" if answer != LOST else "withdrawn"
    else:
        decision = yield from create_once(name, wanted)
    return "gone" if decision is None else Goto("decided", nonce, driver, decision)


@program
def decided(world: World, nonce: str, driver: str, decision: Decision) -> Program:
    """Looks at `setup` after the decision was read or created: without it the decision says nothing."""
    directory, faults = world.jobs[nonce].directory, world.faults
    strict = world.kind.strict and (not world.jobs[nonce].outlasts or "no-kept-look" in faults)
    if not strict and "no-look" not in faults:
        proof = "decision" if "decision-is-proof" in faults else "setup"
        if (yield ("read", directory + proof)) is None:
            yield from done(("delete", (directory + "decision",)))
            return "gone"
    if decision[0] == "abort":
        return "aborted"
    return Goto("forward", nonce, driver, decision)


@program
def forward(world: World, nonce: str, driver: str, decision: Decision) -> Program:
    """Sets the old marker aside, then publishes."""
    kind, directory = world.kind, world.jobs[nonce].directory
    outcome = yield ("read", directory + "outcome")
    if outcome == "rolled-back":
        return Goto("backward", nonce, driver, decision)
    if outcome == "committed":
        return Goto("finish", nonce, driver, decision)
    _, marker, old, _, _ = decision
    if marker is not None:
        aside = directory + "old-SUCCESS"
        if kind.strict:
            answer = yield from sure(("move", "D/_SUCCESS", aside))
            if answer == "no source" and "no-bar" not in world.faults:
                yield from done(("create", aside, "bar"))
        elif kind.rename:
            yield from done(("move", "D/_SUCCESS", aside, marker))
        elif kind.conditions:
            yield from done(("delete_if", "D/_SUCCESS", marker))
        elif (yield ("read", "D/_SUCCESS")) == marker:
            yield from done(("delete", ("D/_SUCCESS",)))
    if kind.rename:
        for number, (name, value) in enumerate(old):
            yield from done(("move", name, f"{directory}old{number}", None if kind.strict else value))
    return Goto("publish", nonce, driver, decision, 0)


@program
def publish(world: World, nonce: str, driver: str, decision: Decision, number: int) -> Program:
    """Publishes one file after the other, then creates the outcome."""
    kind, directory = world.kind, world.jobs[nonce].directory
    _, _, old, files, _ = decision
    if number < len(files):
        source, target, value = files[number]
        replaced = None if kind.rename else dict(old).get(target)
        while True:
            identity = None if kind.strict or "no-source-identity" in world.faults else value
            answer = yield ("move", source, target, identity, replaced)
            if answer == "ok" or (there := (yield ("read", target))) == value:
                return Goto("publish", nonce, driver, decision, number + 1)
            if answer == LOST:
                continue
            outcome = yield ("read", directory + "outcome")
            if outcome == "rolled-back":
                return Goto("backward", nonce, driver, decision)
            if outcome == "committed":
                return Goto("finish", nonce, driver, decision)
            if (yield ("read", directory + "setup")) is None:
                return "gone"
            refused = there is not None and not forward_only(world, decision)
            return Goto("backward", nonce, driver, decision) if refused else "unknown"
    if kind.rename and (yield from sure(("put", f"{directory}succ-{driver}", nonce))) == "no directory":
        return "gone"
    outcome = yield from create_once(directory + "outcome", "committed")
    if outcome is None:
        return "gone"
    if outcome == "rolled-back":
        return Goto("backward", nonce, driver, decision)
    return Goto("finish", nonce, driver, decision, True)


def says_nothing(world: World, nonce: str, driver: str) -> Program:
    """Deletes what a driver made in a directory that is over."""
    directory = world.jobs[nonce].directory
    made = (directory + "outcome",) if not world.jobs[nonce].outlasts else ()
    yield from done(("delete", (*made, f"{directory}succ-{driver}")))
    return "gone"


@program
def finish(world: World, nonce: str, driver: str, decision: Decision, prepared: bool = False) -> Program:
    """Writes `_SUCCESS`, deletes what was superseded, then removes the directory."""
    job, kind, faults = world.jobs[nonce], world.kind, world.faults
    directory, looks = job.directory, not world.kind.strict and "no-look-2" not in world.faults
    if "entry-early" in faults:
        yield from drop_entries(job.id, nonce)
    if kind.rename and not prepared and (yield from sure(("put", f"{directory}succ-{driver}", nonce))) != "ok":
        return "gone"
    if looks and (yield ("read", directory + "setup")) is None:
        return (yield from says_nothing(world, nonce, driver))
    if kind.rename:
        etag = nonce if kind.conditions and "no-etag" not in faults else None
        answer = yield from sure(("publish marker", f"{directory}succ-{driver}", etag))
        if answer == "other":  # a delayed put gave the file another etag
            return Goto("finish", nonce, driver, decision)
        return Goto("remove_committed", nonce)
    while True:
        marker = yield ("read", "D/_SUCCESS")
        if marker == nonce:
            break
        if looks and (yield ("read", directory + "setup")) is None:
            return "gone"
        if "plain-marker" in faults:
            answer = yield ("put", "D/_SUCCESS", nonce)
        elif kind.conditions:
            answer = yield ("put_if", "D/_SUCCESS", nonce, marker)
        else:
            if marker is not None:
                yield from done(("delete", ("D/_SUCCESS",)))
            answer = yield ("create", "D/_SUCCESS", nonce)
        if answer == "ok":
            break
    published = {target for _, target, _ in decision[3]}
    for name, value in decision[2]:
        if name in published:
            continue
        if kind.conditions:
            yield from done(("delete_if", name, value))
        else:  # names are unique: what exists there is what the decision names
            yield from done(("delete", (name,)))
    return Goto("remove_committed", nonce)


@program
def remove_committed(world: World, nonce: str) -> Program:
    """Removes the directory of a committed job, or empties it but for the kept outcome."""
    yield from remove(world, nonce, "outcome", keeps=world.jobs[nonce].kept)
    return "committed"

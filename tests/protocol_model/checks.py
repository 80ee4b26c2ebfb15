"""Checks of the model: in every state, at the end after an operator and a new job, and after delayed requests took effect."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.protocol_model import committing, ending, setting_up  # noqa: F401  (they register the programs)
from tests.protocol_model.committing import meet
from tests.protocol_model.processes import PROGRAMS, Decision, Goto, Job, World, job_files
from tests.protocol_model.stores import Call, Kind, Store, apply, directory_of, is_live

Told = tuple[tuple[str, tuple[Any, ...]], Any]  # a process's program and arguments, and its result
# In a world's faults:
STRICT = "strict"  # no exception is allowed
REQUESTS_FAIL = "requests fail"  # the search has faults
NEXT = ("N1", "N2")  # nonces of the jobs that are run at the end


class Scenario(NamedTuple):
    """Jobs, the processes that act on them, and what exists before."""

    name: str
    jobs: tuple[Job, ...]
    processes: tuple[tuple[str, tuple[Any, ...]], ...]
    open: tuple[str, ...] = ()  # nonces of jobs that are set up and whose tasks committed
    old: tuple[str, ...] = ()  # files of an earlier job; its `_SUCCESS` is there
    committed: tuple[str, ...] = ()  # nonces of open jobs that published and created the outcome, no more

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job.id for job in self.jobs))

    def world(self, kind: Kind, faults: frozenset[str] = frozenset()) -> World:
        jobs = {job.nonce: job for job in self.jobs}
        jobs.update({nonce: Job(self.ids[0], nonce, replaces=("",)) for nonce in NEXT})
        return World(kind, jobs, faults)

    def initial(self, world: World) -> Store:
        store: Store = {f"D/{name}": "old" for name in self.old}
        if self.old:
            store["D/_SUCCESS"] = "old"
        for nonce in self.open:
            job = world.jobs[nonce]
            store.update({job.directory + "setup": 1, job.directory + "opened": "open"})
            if world.kind.rename:
                store, _ = apply(world.kind, store, ("make", job.directory))
            files = tuple((source[len(job.directory) :], value) for source, _, value in job_files(world, job))
            store, _ = apply(world.kind, store, ("fill", job.directory, files, ""))
            if job.listing:
                store[job.directory + "task"] = 1
        for nonce in self.committed:
            job = world.jobs[nonce]
            decision = ("commit", None, (), job_files(world, job), job.replaces)
            store.update({target: value for _, target, value in decision[3]})
            store = {name: value for name, value in store.items() if not name.startswith(job.directory + "up")}
            store.update({job.directory + "decision": decision, job.directory + "outcome": "committed"})
            store.update({f"!decision {nonce}": decision, f"!outcome {nonce}": "committed"})
            store[f"C/{job.id}~{nonce}~a1~1"] = (job.parts, job.replaces)
        return store


def run_alone(world: World, store: Store, name: str, arguments: tuple[Any, ...]) -> tuple[Store, Any]:
    """Runs one process to its end, without faults."""
    stack: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(100):
        running = PROGRAMS[name](world, *arguments)
        try:
            call = next(running)
            while True:
                store, answer = apply(world.kind, store, call)
                call = running.send(answer)
        except StopIteration as end:
            result = end.value
        if isinstance(result, Goto):
            name, arguments = result.to
            if name == "call":
                (name, arguments), then = arguments
                stack.append(then)
        elif stack:
            name, arguments = stack.pop()
            arguments = (*arguments, result)
        else:
            return store, result
    raise AssertionError(("does not end", name, arguments))


def owner(value: str) -> str:
    """Returns the nonce of the job that wrote a file or marker."""
    return value.split("#")[0].strip()


def in_place(store: Store, decision: Decision) -> bool:
    return all(store.get(target) == value for _, target, value in decision[3])


def violated(world: World, scenario: Scenario, store: Store) -> str | None:
    """Returns what is wrong in a state that a reader may see."""
    if "!twice" in store:
        return f"a record was created twice: {store['!twice']}"
    if "!missed" in store:
        return f"a replacing job decided without a file that was there: {store['!missed']}"
    directories = sorted({found for name in store if (found := directory_of(name)) and name[0] not in "!C"})
    live = [each for each in directories if is_live(store, each)]
    undecided = []
    going = []
    for directory in live:
        decision = store.get(directory + "decision", ("",))[0]
        if decision != "abort" and directory + "outcome" not in store:
            undecided.append(directory.split("~")[0])
        if decision == "commit":
            going.append(world.jobs[directory[:-1].split("~")[1]])
    kept = {job.id for job in world.jobs.values() if job.kept and store.get(f"!outcome {job.nonce}") == "committed"}
    for directory in live:
        job = world.jobs[directory[:-1].split("~")[1]]
        if job.id in kept and store.get(f"!outcome {job.nonce}") != "committed":
            return f"set up beside a kept outcome: {job.nonce}"
    if len(undecided) != len(set(undecided)):
        return "two jobs of one id are open at once"
    for index, one in enumerate(going):
        for other in going[index + 1 :]:
            if meet((one.parts, one.replaces), (other.parts, other.replaces)):
                return f"two decided jobs at once whose scopes meet: {one.nonce} {other.nonce}"
    nonce = owner(store.get("D/_SUCCESS", ""))
    if nonce and nonce != "old":
        if store.get(f"!outcome {nonce}") != "committed":
            return f"_SUCCESS of a job that did not commit: {nonce}"
        if not in_place(store, store[f"!decision {nonce}"]):
            # E1: on stores of objects a job that supersedes it may be going on
            beside = [each for each in going if each.nonce != nonce and each.replaces]
            # E4 with a fault: a delete by name that is executed twice, then the create of a driver that stood still
            by_name = world.kind.name == "oss" and REQUESTS_FAIL in world.faults
            if STRICT in world.faults or not (by_name or (beside and not world.kind.rename)):
                return f"_SUCCESS of a job whose files are not in place: {nonce}"
    return None


class Settled(NamedTuple):
    """Runs an operator and the next job of the id; returns what they left, or the violation."""

    message: str | None
    committed: frozenset[str] = frozenset()
    after: Store = {}  # noqa: RUF012  (a NamedTuple; never changed)


def settle(world: World, scenario: Scenario, store: Store) -> Settled:
    """An operator ends every job; the files are looked at; then a job that replaces all runs under the first id."""
    said: list[tuple[str, str]] = []
    # Who ends a job whose directory stays leaves it; the next operator removes it.
    last = ("recover",) if any(job.stays for job in scenario.jobs) else ()
    for job_id in scenario.ids:
        for wish in ("abort", "recover", *last):
            store, results = run_alone(world, store, "operator", (job_id, wish))
            said.extend(results)
            message = violated(world, scenario, store)
            if message:
                return Settled("operator: " + message)
    committed = frozenset(job.nonce for job in scenario.jobs if store.get(f"!outcome {job.nonce}") == "committed")
    for nonce, word in said:
        if word == "unknown":
            return Settled(f"an operator does not know the outcome: {nonce}")
        if word in {"committed", "kept"} and nonce not in committed:
            return Settled(f"an operator reports committed: {nonce}")
        if word in {"aborted", "rolled back"} and nonce in committed:
            return Settled(f"an operator reports {word}: {nonce}")
    message = wrong_files(world, scenario, store, committed) or wrong_marker(world, scenario, store, committed)
    if message:
        return Settled(message)
    for name in store:
        directory = directory_of(name)
        if directory and name[0] not in "!C":
            job = world.jobs.get(directory[:-1].split("~")[1])
            if job is None or not job.kept or job.nonce not in committed:
                return Settled(f"left behind: {name}")
    for job in scenario.jobs:
        if job.kept and job.nonce in committed and "kept-elsewhere" not in world.faults:
            done = not any(name.startswith(job.directory) for name in store)
            if done:
                return Settled(f"the kept outcome is lost: {job.nonce}")
    for job_id in scenario.ids:
        store, _ = run_alone(world, store, "operator", (job_id, "force"))
    store = {name: value for name, value in store.items() if not name.startswith("kept-")}
    store, result = run_alone(world, store, "driver", (NEXT[0], "n1"))
    if result != "committed":
        return Settled(f"the next job is refused: {result}")
    message = not_alone(world, store)
    return Settled(message and f"after the next job: {message}", committed, store)


def superseded(world: World, store: Store, committed: frozenset[str]) -> set[tuple[str, str]]:
    """Returns the files, with their contents, that committed jobs replaced."""
    return {each for nonce in committed for each in store[f"!decision {nonce}"][2]}


def wrong_files(world: World, scenario: Scenario, store: Store, committed: frozenset[str]) -> str | None:
    gone = superseded(world, store, committed)
    wanted: dict[str, str] = {}
    for job in scenario.jobs:
        if job.nonce in committed:
            decision = store[f"!decision {job.nonce}"]
            if len(decision[3]) != len(job.parts):
                return f"committed without its files: {job.nonce}"
            wanted.update({name: value for _, name, value in decision[3] if (name, value) not in gone})
    wanted.update({f"D/{name}": "old" for name in scenario.old if (f"D/{name}", "old") not in gone})
    found = {name: value for name, value in store.items() if name.startswith("D/") and name != "D/_SUCCESS"}
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"a file is lost: {name} of {value}"
    extra = sorted(found.keys() - wanted.keys())
    return f"a file that no committed job wrote: {extra[0]} of {found[extra[0]]}" if extra else None


def wrong_marker(world: World, scenario: Scenario, store: Store, committed: frozenset[str]) -> str | None:
    nonce = owner(store.get("D/_SUCCESS", ""))
    if nonce == "old" and committed:
        return f"the old _SUCCESS after a commit of {sorted(committed)}"
    if not nonce and (committed or scenario.old):
        may_lack = world.kind.name == "oss" and STRICT not in world.faults  # E4
        return None if may_lack else f"no _SUCCESS, committed: {sorted(committed)}"
    return None


def not_alone(world: World, store: Store, *, marker: bool = True) -> str | None:
    """Returns what is wrong where only the next job's output should be."""
    wanted = {name: value for _, name, value in job_files(world, world.jobs[NEXT[0]])}
    found = {name: value for name, value in store.items() if name.startswith("D/") and name != "D/_SUCCESS"}
    if found != wanted:
        return f"files {found}"
    if marker and store.get("D/_SUCCESS") != NEXT[0]:
        return f"_SUCCESS is {store.get('D/_SUCCESS')}"
    return None


def wrong_answer(told: list[Told], committed: frozenset[str]) -> str | None:
    """Returns what a process was told that is not so."""
    for (name, arguments), result in told:
        answers = result if name == "operator" else [(arguments[-2] if name == "ended_then" else arguments[0], result)]
        for nonce, word in answers:
            if word == "unknown":
                return f"a driver does not know the outcome: {nonce}"
            if word in {"committed", "kept"} and nonce not in committed:
                return f"told {word}, which it is not: {nonce}"
            if word in {"aborted", "rolled back"} and nonce in committed:
                return f"told {word}, but it committed: {nonce}"
    return None


def late_after_end(world: World, scenario: Scenario, store: Store, calls: tuple[Call, ...]) -> str | None:
    """Applies delayed requests after the next job, in any order and number."""
    marker = world.kind.name != "oss" or STRICT in world.faults  # E4
    seen = set()
    todo = [(store, calls)]
    while todo:
        store, calls = todo.pop()
        key = (frozenset(store.items()), calls)
        if key in seen:
            continue
        seen.add(key)
        message = not_alone(world, store, marker=marker)
        if message:
            return f"after a delayed request: {message}"
        cleaned = store
        for job_id in scenario.ids:
            for wish in ("abort", "recover", "force"):
                cleaned, _ = run_alone(world, cleaned, "operator", (job_id, wish))
        left = [name for name in cleaned if directory_of(name) and name[0] not in "!C"]
        if left:
            return f"a delayed request left behind: {left[0]}"
        message = not_alone(world, cleaned, marker=marker)
        if message:
            return f"cleanup after a delayed request: {message}"
        _, result = run_alone(world, cleaned, "driver", (NEXT[1], "n2"))
        if result != "committed":
            return f"the job after a delayed request is refused: {result}"
        todo.extend((apply(world.kind, store, call)[0], calls[:i] + calls[i + 1 :]) for i, call in enumerate(calls))
    return None

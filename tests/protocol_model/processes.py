"""Processes as generators of store calls, with a state that can be hashed.

A program is a generator function of a `World` and its arguments. It yields calls and receives answers. The state of a
process is its program, the arguments and the answers so far. `Goto` starts another program and forgets the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.protocol_model.stores import Call, Kind

LOST = "lost"
Program = Generator[Call, Any, Any]
# ("commit", the marker that was there, old files with contents, (source, target, content) of files, subtrees replaced),
# or ("abort", driver).
Decision = tuple[Any, ...]


class Job(NamedTuple):
    """A setup of a job, with the files that the job writes."""

    id: str
    nonce: str
    parts: tuple[str, ...] = ("p1/",)  # directories that it writes a file into
    replaces: tuple[str, ...] = ()  # subtrees that it replaces; "" is the root
    kept: bool = False  # keeps its outcome
    stays: bool = False  # leaves its directory: only `setup` is deleted
    tries: int = 1  # tries after a busy answer, the first included
    listing: bool = False  # delivery by listing

    @property
    def directory(self) -> str:
        return f"{self.id}~{self.nonce}/"

    @property
    def outlasts(self) -> bool:
        """Whether its directory can stand without `setup`, where others vanish in one step."""
        return self.kept or self.stays


class World(NamedTuple):
    """Facts that all processes of a scenario share: the kind of store, the jobs by nonce, and the planted faults."""

    kind: Kind
    jobs: dict[str, Job]
    faults: frozenset[str] = frozenset()


class Goto:
    """The process goes on as another program."""

    def __init__(self, program: str, *arguments: Any) -> None:
        self.to = (program, arguments)


class Process(NamedTuple):
    """State of a process. `then`: the program that receives the result of this one as its last argument."""

    program: str
    arguments: tuple[Any, ...]
    answers: tuple[Any, ...] = ()
    then: tuple[str, tuple[Any, ...]] | None = None


PROGRAMS: dict[str, Callable[..., Program]] = {}


def program(function: Callable[..., Program]) -> Callable[..., Program]:
    """Registers a program under its name."""
    PROGRAMS[function.__name__] = function
    return function


def advance(world: World, process: Process) -> tuple[Process, Call | None, Any]:
    """Returns the process with its answers taken, its next call, or None and its result."""
    while True:
        running = PROGRAMS[process.program](world, *process.arguments)
        try:
            call = next(running)
            for answer in process.answers:
                call = running.send(answer)
            return process, call, None
        except StopIteration as end:
            result = end.value
        if isinstance(result, Goto):
            name, arguments = result.to
            process = Process(name, arguments, (), process.then)
            if name == "call":  # runs a program, then another with its result
                inner, then = arguments
                process = Process(inner[0], inner[1], (), then)
        elif process.then is not None:
            name, arguments = process.then
            process = Process(name, (*arguments, result))
        else:
            return process, None, result


def sure(call: Call) -> Program:
    """Repeats a call that may be repeated until it is answered (the search does: a lost answer changes nothing)."""
    return (yield ("sure", *call))


def done(call: Call) -> Program:
    """Repeats a call until it is answered, whatever the answer."""
    yield ("done", *call)


def create_once(name: str, value: Any) -> Program:
    """Creates a record exclusively. Returns the record that stands, None where the directory is gone."""
    while True:
        answer = yield ("create", name, value)
        if answer == "ok":
            return value
        if answer == "no directory":
            return None
        record = yield ("read", name)
        if record is not None or answer == "exists":
            return record
        # The answer was lost and the record does not exist (yet): once more, the same bytes.


def job_files(world: World, job: Job, attempt: int = 1) -> tuple[tuple[str, str, str], ...]:
    """Returns source, destination and content of the files that a task attempt of the job wrote."""
    value = job.nonce if attempt == 1 else f"{job.nonce}#{attempt}"
    unique = "-" + job.nonce if world.kind.unique_names else ""
    return tuple(
        (f"{job.directory}up{attempt}.{number}", f"D/{part}{job.id}{unique}", value)
        for number, part in enumerate(job.parts)
    )

"""A world seen by a reader who goes by what is decided, of jobs whose tasks write where every reader sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from committer.paths import StorePath
from committer.records.job_state import Decision, decode_record
from committer.records.manifest import decode_task_manifest
from committer.records.success import decode_success
from committer_testing.simulate import run as runs
from committer_testing.simulate.committers import EngineCommitter
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import Scenario, draw_scenario
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.worlds import KINDS, OUT, TEMPORARY, MemoryWorld

ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")
DRAWN_AS: Mapping[str, str] = {"s3": "magic", "azure-flat": "block-list", "gcs": "manifest"}
"""The committer whose scenarios are drawn for a kind of store."""

_DECISION = re.compile(rf"{OUT}/{TEMPORARY}/[^/]+/decision")


class ObjectWorld(MemoryWorld):
    """What `visible` shows of the jobs is what their commit decisions name, under the names that tasks gave.

    Attributes:
        counting: Objects that a decision names, as readers who list see them.
        strays: What a reader who lists saw beside that when all was over.
        misnamed: What was wrong with the `_SUCCESS` that existed there then; empty where nothing was.
    """

    def __init__(self, profile: str, **flags: bool) -> None:
        super().__init__(profile, **flags)
        self.counting: set[str] = set()
        self.strays: set[str] = set()
        self.misnamed = ""
        self._decisions: dict[bytes, tuple[str, set[str]]] = {}
        self._listed: Mapping[str, bytes] | None = None
        self._view: dict[str, bytes] = {}

    def visible(self) -> Mapping[str, bytes]:
        """See `World.visible`."""
        listed = self.listed()
        if listed is not self._listed:
            self._note_decisions()
            self._listed = listed
            shown = {name: data for name, data in listed.items() if self._counts(name)}
            self._view = {ATTEMPT.sub("", name): data for name, data in shown.items()}
        return self._view

    def listed(self) -> Mapping[str, bytes]:
        """What a reader sees who lists."""
        return super().visible()

    def forget(self) -> None:
        """See `World.forget`."""
        listed = self.listed()
        self.strays = {name for name in listed if not self._counts(name)}
        marker = listed.get("_SUCCESS")
        if marker is not None and b'"stocator"' in marker:
            said = decode_success(marker, source="_SUCCESS")
            named = {self._shown(StorePath.from_uri(uri)) for uri in said.filenames}
            if (said.jobId, named) not in self._decisions.values():
                self.misnamed = f"_SUCCESS of {said.jobId} names {len(named)} files, which no decision of it does"
        super().forget()

    def _counts(self, name: str) -> bool:
        return name in self.counting or not ATTEMPT.search(name)

    def _shown(self, path: StorePath) -> str:
        return path.relative_to(self.destination) if path.is_under(self.destination) else path.path

    def _note_decisions(self) -> None:
        files = self.files()
        for name in filter(_DECISION.fullmatch, files):
            data = files[name]
            if data in self._decisions:
                continue
            decision = decode_record(data, Decision, source=name)
            counts: set[str] = set()
            for winner in decision.winners:
                record = files.get(f"{name.removesuffix('decision')}{winner.record}")
                if record is not None:
                    copy = record[winner.offset : winner.offset + winner.length]
                    entries = decode_task_manifest(copy, source=winner.record).files
                    counts |= {self._shown(StorePath.from_uri(entry.d)) for entry in entries}
            self._decisions[data] = (decision.job_id, counts)
            self.counting |= counts


def scenario_of(seed: int, kind: str) -> Scenario:
    """The run of a seed, with choices that the committer takes, and no two objects that a reader takes for one."""
    scenario = replace(draw_scenario(seed, DRAWN_AS[kind]), kind=kind)
    jobs = tuple(
        replace(
            job,
            config=job.config.replace(
                conflict_mode="append", superseded_scope=None, superseded_directories=(), cleanup_skipped=False
            ),
            clash=False,
            shared_names=False,
            same_names=False,
        )
        for job in scenario.jobs
    )
    names = {f"{OUT}/{name}" for job in jobs for task in range(job.tasks) for name in job.names(task, 0)}
    before = {name: data for name, data in scenario.before.items() if not any(_meet(name, one) for one in names)}
    events = tuple(event for event in scenario.events if event.kind != "squatter")
    return replace(scenario, jobs=jobs, before=before, events=events)


def _meet(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


@contextmanager
def seen_by_readers_of_decisions(worlds: type[ObjectWorld] = ObjectWorld) -> Iterator[list[ObjectWorld]]:
    """Has the worlds of the runs of a block be such; gives them as they come."""
    made: list[ObjectWorld] = []
    original = runs.world_of

    def world_of(kind: str) -> MemoryWorld:
        profile, flags = KINDS[kind]
        made.append(worlds(profile, **flags))
        return made[-1]

    runs.world_of = world_of
    try:
        yield made
    finally:
        runs.world_of = original


def simulate_objects(seed: int, kind: str) -> tuple[Result, ObjectWorld]:
    """Runs the scenario of a seed with jobs of `stocator`."""
    scenario = scenario_of(seed, kind)
    with seen_by_readers_of_decisions() as worlds:
        result = simulate(scenario, {DRAWN_AS[kind]: EngineCommitter("stocator")})
    return result, worlds[0]


def wrong_with(result: Result, world: ObjectWorld) -> str:
    """What a run shows to be wrong, a line each; empty where nothing is.

    Objects that do not count may stay where something went wrong, or an operator acted: a process that went on when its
    job was over wrote them.
    """
    found = [f"{one.guarantee}: {one.message}" for one in result.violations]
    if world.misnamed:
        found.append(world.misnamed)
    if world.strays and not (result.faults or result.scenario.events):
        found.append(f"left: {sorted(world.strays)}")
    return "\n".join(found)

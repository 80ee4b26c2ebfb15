"""Whose a directory below `_temporary` is, and how many records of task commits stand in it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from committer.committers.registry import DEFAULT_COMMITTER, committer_for, layout_for, suited_committer
from committer.committers.staging.committer import StagingCommitter
from committer.errors import CommitterError, StoreError, StoreNotFoundError, UnsupportedError
from committer.layout import MANIFEST_SUFFIX, TEMPORARY, DirectoryName, has_nonce
from committer.operations import JobInfo
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.job_directory import JobDirectory
from committer.stages.own_records import read_setup
from committer.stores.base import Store

Owner: TypeAlias = Literal["committer", "hadoop", "classic", "nobody", "unknown"]
"""Whose a job's directory is: this engine's, that of Hadoop's manifest committer, that of its FileOutputCommitter."""


async def owner_of(store: Store, found: JobDirectory) -> Owner:
    """Whose a job's directory is: at most one listing a job attempt, where no setup record says it."""
    if found.layout.setup_name or found.set_up:
        return "committer"
    recorded = found.decided or found.ended
    if found.beside and not recorded:
        return "hadoop"
    if found.attempts:
        return await _owner_of_attempts(store, found)
    if recorded:
        return "committer"
    if found.layout.job_id.isdecimal() and all(
        name == TEMPORARY or name.startswith(("task_", ".")) for name in found.children
    ):
        return "classic"
    if found.intents or not found.is_foreign:
        return "nobody"
    return "unknown"


def can_be_joined(found: JobDirectory) -> bool:
    """Whether its directories are named as Hadoop 3.4.1 and later do: ``<id>/00``, not ``manifest_<id>`` or ``0``."""
    if found.layout.job_id.startswith("manifest_"):
        return False
    return all(attempt.name == f"{int(attempt.name):02d}" for attempt in _attempts(found))


async def count_of_hadoop(store: Store, found: JobDirectory) -> int:
    """Task records of a job of Hadoop's: one listing a job attempt; where they lie beside, three."""
    number = 0
    suffix, places = MANIFEST_SUFFIX, [attempt / "manifests" for attempt in _attempts(found)]
    if found.beside:
        # Only what a commit would load: the newest job attempt's.
        job_attempt = await suited_committer(store).newest_hadoop_attempt(store, found.layout) or 0
        newest = layout_for(store, found.layout.destination, found.layout.job_id, job_attempt)
        suffix, places = newest.record_suffix, [newest.manifests]
    for place in places:
        try:
            async for child in store.list(place):
                number += child.path.name.endswith(suffix) and not child.path.name.startswith(".")
        except StoreError:
            continue
    return number


async def count_of_ours(store: Store, destination: StorePath, info: JobInfo) -> int | None:
    """Task commits of an open job of this engine, None where they cannot be told: one listing.

    Of the staging committers one read before it: their records may be where no record may send a reader (G10).
    """
    spec = JobSpec(
        destination=destination.uri,
        job_id=info.job_id,
        committer=info.committer or DEFAULT_COMMITTER,
        delivery="message" if info.delivery == "message" else "listing",
        setup=DirectoryName.of(info.directory).setup,
    )
    try:
        layout = committer_for(spec.committer).layout(spec)
    except UnsupportedError:
        return None
    by_message = info.delivery == "message"
    try:
        staging = isinstance(committer_for(spec.committer), StagingCommitter) and not by_message
        if staging and (await read_setup(store, layout)).spec.records_at:
            return None
    except CommitterError:
        return None
    place = layout.attempts if by_message else layout.manifests
    try:
        names = [child.path.name async for child in store.list(place)]
        return sum(name.endswith(MANIFEST_SUFFIX) if by_message else layout.is_record(name) for name in names)
    except StoreNotFoundError:
        return 0
    except StoreError:
        return None


async def _owner_of_attempts(store: Store, found: JobDirectory) -> Owner:
    """Whose job attempts are that no setup record explains: at most two listings each.

    Only this engine's jobs have records by attempt, and lists of uploads. Only its task attempts have a nonce in the
    name of what they write to; where late writes are refused they may be a job's of Hadoop's, which they joined.
    """
    late = not store.capabilities.refuses_late_writes
    owner: Owner = "unknown"
    for attempt in _attempts(found):
        try:
            names = {child.path.name async for child in store.list(attempt)}
            if names & {"attempts", "uploads"}:
                return "committer"
            if late and "tasks" in names:
                runs = [child.path.name async for child in store.list(attempt / "tasks")]
                if runs and all(map(has_nonce, runs)):
                    return "committer"
        except StoreNotFoundError:
            continue
        if not names or names & {"manifests", "tasks", "tasks-fenced"}:
            owner = "hadoop"
    return owner


def _attempts(found: JobDirectory) -> list[StorePath]:
    return [child.path for name, child in found.children.items() if child.is_directory and name.isdecimal()]

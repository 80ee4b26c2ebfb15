"""What makes room for a job's files: what stands at their names, and old files that are superseded."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.flow.matches import Matches
from committer.flow.together import both
from committer.stages.base import StageContext
from committer.stages.destination_file import object_at_destination
from committer.stages.find_targets import FindTargets, TargetsRequest
from committer.stages.foreign_metadata import refusal_of
from committer.stages.inspect_destination import DestinationView
from committer.stages.names import NameFolding, is_absolute, with_ancestors
from committer.stages.scopes import superseded_scope
from committer.stages.superseded import ListSuperseded, Superseded
from committer.stages.target_directories import LookIntoTargets
from committer.stores.abilities import LINKS
from committer.stores.helpers import walk


class Room(NamedTuple):
    """What makes room.

    Attributes:
        view: What stands at the destination.
        superseded: Old files to take away.
        links: What to say of links on the way to them.
        refusal: The problem and the next step if other writers' metadata forbids the job; None otherwise.
        metadata: Names of other writers' summary files that the job makes stale.
    """

    view: DestinationView
    superseded: Superseded
    links: list[str]
    refusal: tuple[str, str] | None
    metadata: list[str]


async def make_room(context: StageContext, asked: TargetsRequest) -> Room:
    """Lists old files, where the job replaces them, and says what stands at the names of new ones. Changes nothing.

    One listing of each directory tells both.
    """
    folding, loaded = NameFolding(context.store.capabilities), asked.loaded
    whole, stale = False, list[str]()
    superseded, links, listed = Superseded(layout=context.layout, folding=folding), list[str](), set[str]()
    try:
        if context.config.conflict_mode == "replace":
            links = await _links_named(context, loaded.written)
            written = {folding.fold(name) for name in loaded.written}
            listing = ListSuperseded(context, superseded, asked.in_the_way, written)
            scope = superseded_scope(context.config, sorted(loaded.written), folding)
            whole = "" in scope
            if context.config.replaces_destination:
                _listed, standing = await both(listing.run(scope), object_at_destination(context))
                if standing is not None:
                    await superseded.add([standing.path.path], [standing])
            else:
                await listing.run(scope)
            listed = listing.listed
        view = await FindTargets(context).run(replace(asked, listed=listed, places=superseded.places))
        superseded.places += view.targets.facts.count
        await _make_way(context, view, superseded, listed)
        if loaded.files or superseded.any:
            stale = await _add_summaries(context, view, superseded, listed)
        await _leave_out(superseded, view, folding, listed_apart=loaded.entries is None or bool(stale))
    except BaseException:
        await superseded.facts.close()
        await asked.inspected.view.targets.close()
        raise
    return Room(view, superseded, links, refusal_of(view.root, whole=whole), stale)


async def _add_summaries(
    context: StageContext, view: DestinationView, superseded: Superseded, listed: AbstractSet[str]
) -> list[str]:
    """Adds to the old files the summary files of directories that the job changes, and returns their names.

    Excludes no other job: two jobs that add files at once may both find a summary file, and the first to publish
    removes it.
    Cost: one listing for each directory of a symlink manifest.
    """
    fold = NameFolding(context.store.capabilities).fold
    found = {name: status for name, status in view.summaries.items() if fold(name.rpartition("/")[0]) not in listed}
    for _mark, status in view.root.of(("summary",) if "" not in listed else ()):
        if not status.is_directory:
            found[status.path.name] = status
            continue
        # Another job may remove it meanwhile.
        with suppress(StoreNotFoundError, StoreNotADirectoryError):
            async for file in walk(context.store, status.path):
                if not file.is_directory or file.is_link:
                    found[context.layout.name_of(file.path)] = file
    await superseded.add([*found], [*found.values()], replaces=False)
    return sorted({name if name in view.summaries else name.partition("/")[0] for name in found})


async def _leave_out(
    superseded: Superseded, view: DestinationView, folding: NameFolding, *, listed_apart: bool
) -> None:
    """Leaves out of the old files what makes room by itself.

    Args:
        superseded: The old files.
        view: What stands at the destination.
        folding: How the store compares names.
        listed_apart: Whether it was not known yet which of them stand at names of new ones when they were listed.
    """
    async with Matches[bool](bool) as replaced:
        await replaced.note(folding.fold_all([*view.blocking]), [True] * len(view.blocking))
        if listed_apart and superseded.facts:
            async for facts in view.targets.facts.batches():
                await replaced.note(folding.fold_all([fact.path for fact in facts]), [True] * len(facts))
        await superseded.leave_out(replaced)


async def _links_named(context: StageContext, written: Collection[str]) -> list[str]:
    """What to say of a link on the way to a directory that the caller named, and the job does not write to.

    Gone through, it would have files deleted that are another directory's. At most one call, and one a root.
    """
    layout, fold = context.layout, NameFolding(context.store.capabilities).fold
    gone_through = {fold(directory) for directory in with_ancestors(sorted(written), layout.roots)}
    named = [name for name in context.config.superseded_directories if fold(name) not in gone_through]
    if not (named and context.store.capabilities.links):
        return []
    able = LINKS.required(context.store, "find_link")
    found = [await able.find_link(layout.destination, [name for name in named if not is_absolute(name)])]
    for root in sorted(layout.roots):
        below = [name.removeprefix(f"{root}/") for name in named if name.startswith(f"{root}/")]
        link = await able.find_link(layout.target(root), below) if below else None
        found.append(link and f"{root}/{link}")
    return [
        f"{link} is a link, and is to be superseded: the files behind it are another directory's"
        for link in found
        if link
    ]


async def _make_way(
    context: StageContext, view: DestinationView, superseded: Superseded, listed: AbstractSet[str]
) -> None:
    """Looks into directories that are to make room for files.

    Where directories are not real such a directory is in no file's way: the files below it are old ones to take away.
    """
    standing = sorted(view.targets.directories)
    if not standing or context.config.existing_target != "replace":
        return
    found = await LookIntoTargets(context, superseded, listed).run(standing)
    view.jobs.update(found.jobs)
    for name, mounted in found.mounted.items():
        view.closed[name] = f"another volume is mounted at {mounted}"

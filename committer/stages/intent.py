"""The intent of a driver that commits: how jobs that commit into one destination see each other (G11)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from committer.errors import (
    CommitterError,
    JobNotFoundError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
)
from committer.paths import StorePath
from committer.records.job_state import Intent, NamedRecord, decode_record, encode_record, limit_of
from committer.stages.base import Stage, StageContext
from committer.stages.job_directory import JobDirectory
from committer.stages.other_setup import delete_intent
from committer.stages.own_records import read_record
from committer.stages.release_lock import release_lock
from committer.stages.replace_lock import TakeReplaceLock
from committer.stages.take_away import is_barred, is_told
from committer.stores.helpers import create_exclusively


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """What a commit is about to do.

    Attributes:
        winners: Records named by messages; None for a listing.
        tasks: How many tasks the job has; None when unknown.
        replacing: Whether old files will be taken away.
    """

    winners: list[NamedRecord] | None
    tasks: int | None
    replacing: bool


class DeclareIntent(Stage[CommitIntent, StorePath]):
    """Writes the intent; a replacing job then takes the replace lock and looks for intents.

    A job that replaces nothing looks for the lock itself once its intent stands (`look_for_lock`). Either order of the
    two jobs lets at least one of them see the other, and who does withdraws.

    A driver that finds another one's intent, dead or alive, writes one of its own beside it. So a driver that
    withdraws takes back nothing that another driver of the job rests on.

    Preconditions: the job stands, undecided.
    Postconditions: the intent stands; for a replacing job so does the lock, and no other job's intent does.
    Returns: this driver's own intent.
    Failure modes: `DestinationBusyError` names the owners; an intent of one's own, and the lock, are gone again.
    Cost: 1 call; for a replacing job 2 more and one a neighbouring job; 2 more beside another driver.
    """

    name = "job_stage_declare_intent"

    async def execute(self, value: CommitIntent) -> StorePath:
        """Declares; takes the lock, withdraws when another job is in the way."""
        layout = self.context.layout
        try:
            own = await self._declare(value)
        except StoreNotFoundError as error:
            raise JobNotFoundError(
                f"the directory of job {layout.job_id} vanished: a cleanup removed it, or a Hadoop committer deleted "
                "all of _temporary",
                operation=self.name,
                path=layout.job_directory,
                next_step="run the job again; nothing was published",
                causes=[error],
            ) from error
        if value.replacing:
            try:
                await TakeReplaceLock(self.context).run(None)
            except CommitterError:
                # The caller finds an intent that could not be taken back, and says so.
                with suppress(CommitterError):
                    await withdraw(self.context, own)
                raise
        return own

    async def _declare(self, value: CommitIntent) -> StorePath:
        layout, store, durable = self.context.layout, self.context.store, self.context.durable
        intent = Intent(
            job_id=layout.job_id,
            driver=self.context.driver,
            created=self.context.timestamp(),
            winners=value.winners,
            tasks=value.tasks,
            replacing=value.replacing,
            setup=layout.setup_name,
        )
        wanted = encode_record(intent)
        temporary = layout.temporary_of(layout.intent, self.context.driver)
        found = await create_exclusively(
            store, layout.intent, wanted, temporary=temporary, durable=durable, limit=limit_of(Intent)
        )
        standing = decode_record(found, Intent, source=str(layout.intent))
        if standing.driver == self.context.driver:
            return layout.intent
        # Beside the first driver's, which is its own to take back. A recoverer goes by the one that came last.
        own = layout.joined_intent(self.context.driver)
        await store.put(own, wanted, temporary=temporary, durable=durable)
        return own


async def own_intent(context: StageContext, found: JobDirectory) -> StorePath | None:
    """This driver's intent among what stands in a job's directory; at most one call."""
    joined = context.layout.joined_intent(context.driver)
    if joined.name in found.children:
        return joined
    if context.layout.intent.name not in found.children:
        return None
    standing = await read_record(context.store, context.layout.intent, Intent)
    return context.layout.intent if standing is not None and standing.driver == context.driver else None


async def withdraw(context: StageContext, intent: StorePath) -> None:
    """Takes a driver's intent back, and the lock where this driver took it and no other one of the job rests on it.

    A driver may withdraw late, and so may its request arrive. By then the intent that stands under the name of its own
    may be that of the next try, or of a job that was set up under the id: by it jobs that replace see that one. So the
    first driver's intent is deleted on condition that it is the one that was looked at. Where the store is not told
    which file to take (HDFS, local disks) the intent is renamed to a name of this driver's, in the directory that goes
    with its setup, and replaces nothing. The first rename that succeeds occupies that name until the directory is
    removed, and then there is no place any more for one that is late. So it is with the replace lock (`release_lock`).

    Cost: 3 calls, and where the store is not told what to take 1; after a lost answer up to 7 more; and what it takes
    to release the lock.
    """
    await release_lock(context, driver=context.driver)
    layout, store = context.layout, context.store
    if intent != layout.intent or not layout.setup_name:
        # Named after this driver; or a job of Hadoop's.
        await store.delete_file(intent)
        return
    if is_told(store):
        try:
            await delete_intent(context, driver=context.driver)
            return
        except StoreOutcomeUnknownError:
            # It takes nothing but what was looked at, so a second request may go beside it.
            pass
    elif await _rename_once(context):
        return
    # What still stands, if it is this driver's: its name was taken already, or its setup died before it made that
    # directory.
    await delete_intent(context, driver=context.driver)


async def _rename_once(context: StageContext) -> bool:
    """Renames the intent to where one rename of this driver can go; False when it may stand, and none comes any more.

    Raises:
        StoreOutcomeUnknownError: A rename may be under way. What it takes is this driver's intent, which stays.
    """
    withdrawn = context.layout.drivers / f"intent-of-{context.driver}"
    try:
        await context.store.rename_file(context.layout.intent, withdrawn)
    except (StoreExistsError, StoreNotFoundError):
        return False
    except StoreOutcomeUnknownError:
        # Also where it came: where a rename is a link and a delete, both names may stand.
        await is_barred(context.store, withdrawn)
        return False
    return True

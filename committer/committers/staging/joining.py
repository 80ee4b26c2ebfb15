"""Joining a job that Hadoop's staging committers set up: this engine claims it, with a setup record at the destination.

Hadoop's driver leaves nothing there that tells of the job. Its directory in the place of pending sets says that it
stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import msgspec

from committer.audit import audit
from committer.committers.base import Committer
from committer.errors import JobExistsError, JobStateError, StoreNotADirectoryError, StoreNotFoundError
from committer.stages.base import StageContext
from committer.stages.job_stands import no_job_elsewhere
from committer.stages.own_records import read_setup
from committer.stages.setup_job import claim_hadoop_job, finish_claim
from committer.stores.helpers import exists


async def join_hadoop(committer: Committer, context: StageContext, needs: Mapping[str, str]) -> StageContext:
    """The context of the job as this engine knows it from now on: some 12 calls when first joined, else about 9.

    Args:
        committer: The job's.
        context: The job, with the store of its records.
        needs: What the committer needs of the destination's store.

    Raises:
        JobNotFoundError: It does not stand.
        JobStateError: It was joined as something else.
    """
    layout, config = context.layout, committer.choices(context.config)
    spec = msgspec.structs.replace(context.spec, hadoop=False, records_at=layout.manifests.uri, config=config)
    context = replace(context, config=config)
    for _try in range(2):
        with suppress(StoreNotFoundError, StoreNotADirectoryError):
            found = (await read_setup(context.store, layout)).spec
            if (found.committer, found.records_at) != (spec.committer, spec.records_at):
                raise JobStateError(
                    f"a job {layout.job_id} stands there already, with the committer {found.committer} and its task "
                    f"records at {found.records_at or 'the destination'}",
                    operation="attach_job",
                    path=layout.setup,
                    next_step="join it as that; or look whether the job id, the place or the job attempt is another",
                )
            known = committer.known_as(context, spec)
            await finish_claim(known)
            return known
        if not await exists(context.holding(layout.manifests), layout.manifests):
            raise no_job_elsewhere(layout, "attach_job")
        claimed = committer.known_as(context, spec)
        with suppress(JobExistsError), audit(ji=layout.job_id):
            await claim_hadoop_job(claimed, needs)
            return claimed
    raise no_job_elsewhere(layout, "attach_job")

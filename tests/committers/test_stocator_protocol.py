"""What all committers share, of jobs of `stocator`: seen by a reader who goes by `_SUCCESS`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api import test_abort as aborts
from tests.api import test_deliveries as deliveries
from tests.committers import test_commit_protocol as protocol
from tests.committers.stocator_place import PROFILES, StocatorPlace

_NOT_SHARED = {
    # It counts directories that the job made: here tasks made them.
    "test_full_lifecycle_shows_nothing_before_job_commit",
    "test_concurrent_task_commits_with_shared_sub_directory",
    # They have a publish action fail, or another file exist where one goes: here is none, and none can.
    "test_job_commit_that_fails_once_and_is_retried",
    "test_abort_of_a_decided_job_deletes_nothing_and_names_recover",
    "test_abort_of_a_task_after_the_job_was_decided",
    "test_refused_commit_leaves_the_job_open",
    "test_leaving_the_block_after_a_refused_commit_aborts",
    # They skip the cleanup, which is refused.
    "test_abort_of_a_committed_job_does_nothing",
    "test_abort_with_cleanup_skipped_leaves_a_record",
    # They look for the lists of uploads that an aborted attempt leaves to no one.
    "test_abort_task_by_ids_alone",
    # Several jobs, one after the other: `_SUCCESS` names the files of the last.
    "test_job_ids_of_every_allowed_form",
    "test_earlier_marker_stays_until_the_decision",
    "test_abort_task_of_an_own_attempt_takes_it_out_of_the_commit",
    "test_recover_task_gives_the_message_anew",
    "test_jobs_of_both_deliveries_side_by_side",
}
_SHARED = [
    test
    for module in (protocol, aborts, deliveries)
    for name, test in vars(module).items()
    if name.startswith("test_") and "place" in test.__code__.co_varnames[: test.__code__.co_argcount]
]
# Collected here once more, and run with the places below.
globals().update({test.__name__: test for test in _SHARED if test.__name__ not in _NOT_SHARED})


@pytest.fixture(params=PROFILES)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[StocatorPlace]:
    made = StocatorPlace(request.param)
    yield made
    await made.store.close()


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    assert {test.__name__ for test in _SHARED} >= _NOT_SHARED
    assert len(_SHARED) - len(_NOT_SHARED) > 40

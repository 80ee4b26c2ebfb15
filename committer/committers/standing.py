"""The state table that commit, recover, roll back and abort follow.

Only the records in a job's directory determine its state, so any driver can continue after another one stopped.
The loop over `STEPS` is `committer.committers.job_commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple


class Standing(StrEnum):
    """A state of a job; see `MEANINGS`."""

    GONE = "gone"
    KEPT = "kept"
    ARRIVING = "arriving"
    OVER = "over"
    OPEN = "open"
    INTENDED = "intended"
    ABORTED = "aborted"
    DECIDED = "decided"
    REFUSED = "refused"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNDONE = "undone"


class Seen(NamedTuple):
    """The records found in a job's directory; the setup record is looked for after the others."""

    anything: bool = False
    setup: bool = False
    opened: Literal["open", "closed"] | None = None
    intent: bool = False
    decision: Literal["commit", "abort"] | None = None
    outcome: Literal["committed", "rolled-back"] | None = None
    kept: bool = False


def classify(seen: Seen) -> Standing:
    """Returns the state of a job with these records, by the first rule that fits."""
    if not seen.anything:
        return Standing.GONE
    if seen.kept and not (seen.setup and seen.decision is not None and seen.outcome is not None):
        # A lone setup record beside it was created by a delayed request.
        return Standing.KEPT
    if seen.opened is None and seen.decision is None and seen.outcome is None:
        return Standing.ARRIVING
    if not seen.setup or seen.opened != "open":
        return Standing.OVER
    if seen.decision is None:
        # No driver creates an outcome without a decision: a removal deleted the decision first.
        if seen.outcome is not None:
            return Standing.OVER
        return Standing.INTENDED if seen.intent else Standing.OPEN
    if seen.decision == "abort":
        return Standing.ABORTED
    if seen.outcome is None:
        return Standing.DECIDED
    return Standing.COMMITTED if seen.outcome == "committed" else Standing.ROLLED_BACK


class Wish(StrEnum):
    """Call that a caller makes for a job: commit, recover, roll back or abort."""

    COMMIT = "commit"
    RECOVER = "recover"
    ROLL_BACK = "roll back"
    ABORT = "abort"


class Step(StrEnum):
    """The next step of a driver."""

    REPORT = "report how it ended"
    CLOSE = "close it, remove it"
    REMOVE_REST = "remove the rest"
    DECIDE = "decide to commit it"
    DECIDE_AS_INTENDED = "decide as the intent says"
    DECIDE_IF_FORCED = "refuse: undecided; by force, decide by a listing"
    DECIDE_AGAINST = "decide against it"
    CLEAN_UP_ABORTED = "clean up behind the abort"
    PUBLISH = "publish, create the outcome"
    TAKE_BACK = "create the outcome"
    UNDO = "fence, undo what was published"
    CLEAN_UP_UNDONE = "clean up behind the rollback"
    FINISH = "write _SUCCESS, clean up"
    LEAVE = "leave it: it ended"
    REFUSE_DECIDED = "refuse: decided"
    REFUSE_ABORTED = "refuse: aborted"
    REFUSE_COMMITTED = "refuse: committed"


MEANINGS: Final[Mapping[Standing, str]] = {
    Standing.GONE: "it has no directory: it ended and was cleaned up, or never was",
    Standing.KEPT: "it committed, and its outcome stays: the id is used up",
    Standing.ARRIVING: "it is being set up, or its driver died in the setup",
    Standing.OVER: "it ended, or never was opened: its directory is being removed, or the driver that did died",
    Standing.OPEN: "it is set up, and no driver began to commit it",
    Standing.INTENDED: "a driver began to commit it, and none decided",
    Standing.ABORTED: "it is decided against",
    Standing.DECIDED: "it is decided to be committed, and being published",
    Standing.REFUSED: "its driver met a refusal for good when it published: the job is to be rolled back",
    Standing.COMMITTED: "every file is published; `_SUCCESS` and cleanup are left",
    Standing.ROLLED_BACK: "it is being rolled back",
    Standing.UNDONE: "this driver rolled it back; only cleanup is left",
}


def _row(commit: Step, recover: Step, roll_back: Step, abort: Step) -> Mapping[Wish, Step]:
    return {Wish.COMMIT: commit, Wish.RECOVER: recover, Wish.ROLL_BACK: roll_back, Wish.ABORT: abort}


_S, _T = Step, Standing
STEPS: Final[Mapping[Standing, Mapping[Wish, Step]]] = {
    #                    commit               recover                roll back               abort
    _T.GONE:        _row(_S.REPORT,           _S.REPORT,             _S.REPORT,              _S.LEAVE),
    _T.KEPT:        _row(_S.REPORT,           _S.REPORT,             _S.REFUSE_COMMITTED,    _S.LEAVE),
    _T.ARRIVING:    _row(_S.REPORT,           _S.CLOSE,              _S.CLOSE,               _S.CLOSE),
    _T.OVER:        _row(_S.REMOVE_REST,      _S.REMOVE_REST,        _S.REMOVE_REST,         _S.REMOVE_REST),
    _T.OPEN:        _row(_S.DECIDE,           _S.DECIDE_IF_FORCED,   _S.DECIDE_AGAINST,      _S.DECIDE_AGAINST),
    _T.INTENDED:    _row(_S.DECIDE,           _S.DECIDE_AS_INTENDED, _S.DECIDE_AGAINST,      _S.DECIDE_AGAINST),
    _T.ABORTED:     _row(_S.REFUSE_ABORTED,   _S.REFUSE_ABORTED,     _S.CLEAN_UP_ABORTED,    _S.CLEAN_UP_ABORTED),
    _T.DECIDED:     _row(_S.PUBLISH,          _S.PUBLISH,            _S.TAKE_BACK,           _S.REFUSE_DECIDED),
    _T.REFUSED:     _row(_S.TAKE_BACK,        _S.TAKE_BACK,          _S.TAKE_BACK,           _S.REFUSE_DECIDED),
    _T.COMMITTED:   _row(_S.FINISH,           _S.FINISH,             _S.REFUSE_COMMITTED,    _S.LEAVE),
    _T.ROLLED_BACK: _row(_S.UNDO,             _S.UNDO,               _S.UNDO,                _S.LEAVE),
    _T.UNDONE:      _row(_S.CLEAN_UP_UNDONE,  _S.CLEAN_UP_UNDONE,    _S.CLEAN_UP_UNDONE,     _S.LEAVE),
}  # fmt: skip
"""The next step, by the job's state and the caller's wish."""

LEADS_TO: Final[Mapping[Step, Standing]] = {
    Step.CLOSE: Standing.OVER,
    Step.REMOVE_REST: Standing.GONE,
    Step.DECIDE: Standing.DECIDED,
    Step.DECIDE_AS_INTENDED: Standing.DECIDED,
    Step.DECIDE_IF_FORCED: Standing.DECIDED,
    Step.DECIDE_AGAINST: Standing.ABORTED,
    Step.CLEAN_UP_ABORTED: Standing.GONE,
    Step.PUBLISH: Standing.COMMITTED,
    Step.FINISH: Standing.GONE,
    Step.TAKE_BACK: Standing.ROLLED_BACK,
    Step.UNDO: Standing.UNDONE,
    Step.CLEAN_UP_UNDONE: Standing.GONE,
}
"""The state after a step of the only driver; other steps change nothing. FINISH may lead to KEPT (`outcome_kept`)."""

DECIDING: Final = frozenset({Step.DECIDE, Step.DECIDE_AS_INTENDED, Step.DECIDE_IF_FORCED})
"""The steps that decide to commit a job."""

CARRYING_OUT: Final = frozenset({Step.PUBLISH, Step.TAKE_BACK, Step.UNDO, Step.FINISH})
"""The steps that carry out a decision; any number of drivers may take them at once."""

REFUSING: Final = frozenset({Step.REFUSE_DECIDED, Step.REFUSE_ABORTED, Step.REFUSE_COMMITTED})
"""The steps that only raise."""

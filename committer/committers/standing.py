"""Where a job can stand, what is wanted of it, and what follows: the table that commit, recover and abort go by.

Nothing but the job's directory says where it stands, so any driver goes on from where another one stopped. Commit,
recover, rollback and abort are one loop over `STEPS`, in `committer.committers.job_commit`: read the records, take the
step that the table names, and so on from where that led, until a step ends the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple


class Standing(StrEnum):
    """Where a job stands."""

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
    """Records found in a job's directory.

    Attributes:
        anything: Any name at all.
        setup: The setup record, looked for after the others.
        opened: What `opened` says; None where it does not exist.
        intent: A driver's intent.
        decision: What the decision says; None where it does not exist.
        outcome: What the outcome says; None where it does not exist.
        kept: The record of a committed job that keeps its outcome.
    """

    anything: bool = False
    setup: bool = False
    opened: Literal["open", "closed"] | None = None
    intent: bool = False
    decision: Literal["commit", "abort"] | None = None
    outcome: Literal["committed", "rolled-back"] | None = None
    kept: bool = False


def classify(seen: Seen) -> Standing:
    """Returns where a job stands whose directory holds these records; the first rule that fits."""
    if not seen.anything:
        return Standing.GONE
    if seen.kept and not (seen.setup and seen.decision is not None and seen.outcome is not None):
        # A setup record alone beside it was created by a repeated request.
        return Standing.KEPT
    if seen.opened is None and seen.decision is None and seen.outcome is None:
        return Standing.ARRIVING
    if not seen.setup or seen.opened != "open":
        return Standing.OVER
    if seen.decision is None:
        # No driver creates an outcome without a decision: a removal deleted that first.
        if seen.outcome is not None:
            return Standing.OVER
        return Standing.INTENDED if seen.intent else Standing.OPEN
    if seen.decision == "abort":
        return Standing.ABORTED
    if seen.outcome is None:
        return Standing.DECIDED
    return Standing.COMMITTED if seen.outcome == "committed" else Standing.ROLLED_BACK


class Wish(StrEnum):
    """What a caller wants of a job."""

    COMMIT = "commit"
    RECOVER = "recover"
    ROLL_BACK = "roll back"
    ABORT = "abort"


class Step(StrEnum):
    """What a driver does next."""

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
    Standing.REFUSED: "its driver met a refusal for good when it published: the job is to be taken back",
    Standing.COMMITTED: "every file is published; `_SUCCESS` and cleanup are left",
    Standing.ROLLED_BACK: "it is being taken back",
    Standing.UNDONE: "this driver took it back; only cleanup is left",
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
"""The step that follows, by where the job stands and what is wanted."""

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
"""Where a step brings a job that no other driver is at; the others change nothing. With `outcome_kept` a committed job
ends as kept, not gone.
"""

DECIDING: Final = frozenset({Step.DECIDE, Step.DECIDE_AS_INTENDED, Step.DECIDE_IF_FORCED})
"""The steps that come to a decision to commit a job."""

CARRYING_OUT: Final = frozenset({Step.PUBLISH, Step.TAKE_BACK, Step.UNDO, Step.FINISH})
"""The steps that carry one out, which any number of drivers may take at once."""

REFUSING: Final = frozenset({Step.REFUSE_DECIDED, Step.REFUSE_ABORTED, Step.REFUSE_COMMITTED})
"""The steps that only raise."""


def step_for(standing: Standing, wish: Wish) -> Step:
    """The step that follows."""
    return STEPS[standing][wish]

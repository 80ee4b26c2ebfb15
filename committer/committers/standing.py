"""Where a job stands, what is wanted of it, and what follows: the table that commit, recover and abort go by.

Nothing but the job's directory says where it stands, so any driver goes on from where another one stopped. Commit,
recover, rollback and abort are one loop over `STEPS`, in `committer.committers.job_commit`: look, take the step that
the table names, and so on from where that led, until a step ends the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Standing(StrEnum):
    """Where a job stands."""

    GONE = "gone"
    REMAINS = "remains"
    CLAIMED = "claimed"
    OPEN = "open"
    INTENDED = "intended"
    ABORTED = "aborted"
    EMPTIED = "emptied"
    DECIDED = "decided"
    FENCED = "fenced"
    REFUSED = "refused"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    FINISHED = "finished"
    TAKEN_BACK = "taken back"
    KEPT = "kept"
    ONLY_OUTCOME = "only outcome"
    STALE = "stale"
    REPEATED = "repeated"
    ANEW = "set up anew"
    MISTAKEN = "mistaken"


class Wish(StrEnum):
    """What a caller wants of a job."""

    COMMIT = "commit"
    RECOVER = "recover"
    ROLL_BACK = "roll back"
    ABORT = "abort"


class Step(StrEnum):
    """What a driver does next."""

    TELL = "tell how it ended"
    DECIDE = "decide to commit it"
    DECIDE_AS_INTENDED = "decide as the intent says"
    DECIDE_IF_FORCED = "refuse: undecided; by force, decide by a listing"
    DECIDE_AGAINST = "decide against it"
    REMOVE_REMAINS = "remove what is left"
    REMOVE_CLAIMED = "remove what was claimed"
    CLEAN_UP_ABORTED = "clean up behind the abort"
    REMOVE_EMPTIED = "remove the rest"
    PUBLISH = "publish, write the outcome"
    TAKE_BACK = "fence, write the outcome"
    UNDO = "undo what was published"
    FINISH = "write _SUCCESS, clean up"
    CLEAN_UP_TAKEN_BACK = "clean up behind the rollback"
    CLEAN_UP_KEPT = "clean up beside the kept outcome"
    REMOVE_OUTCOME = "remove the outcome"
    REMOVE_STALE = "remove the stale decision"
    REMOVE_REPEATED = "remove the repeated decision"
    REMOVE_MISTAKEN = "remove the mistaken decision"
    LEAVE = "leave it: it ended"
    REFUSE_DECIDED = "refuse: decided"
    REFUSE_ABORTED = "refuse: aborted"
    REFUSE_COMMITTED = "refuse: committed"
    REFUSE_ANEW = "refuse: set up anew"


MEANINGS: Final[Mapping[Standing, str]] = {
    Standing.GONE: "it has no directory: it ended and was cleaned up, or never was",
    Standing.REMAINS: "its directory holds what late requests, or a removal that died, left of a job that is over",
    Standing.CLAIMED: "a cleanup claimed its id, to remove what is left of a job that is over",
    Standing.OPEN: "it is set up, and no driver began to commit it",
    Standing.INTENDED: "a driver began to commit it, and none decided",
    Standing.ABORTED: "it is decided against",
    Standing.EMPTIED: "a decision against it outlasted its setup record: an abort that is cleaned up, or came late",
    Standing.DECIDED: "it is decided to be committed, and being published",
    Standing.FENCED: "a rollback began: late publish actions fail",
    Standing.REFUSED: "its driver met a refusal for good when it published: the job is to be taken back",
    Standing.COMMITTED: "every file is published; `_SUCCESS` and cleanup are left",
    Standing.ROLLED_BACK: "it is being taken back",
    Standing.FINISHED: "it is committed, with `_SUCCESS`; only cleanup is left",
    Standing.TAKEN_BACK: "it is taken back; only cleanup is left",
    Standing.KEPT: "it committed, and its outcome stays: the id is used up",
    Standing.ONLY_OUTCOME: "a cleanup stopped before it removed the outcome",
    Standing.STALE: "a late request repeated a decision about a job that was emptied before",
    Standing.REPEATED: "a late request repeated the decision of a job that committed and was cleaned up",
    Standing.ANEW: "its id was set up anew since this driver set it up or joined it: what stands there is another job",
    Standing.MISTAKEN: "a driver of an earlier setup of its id decided late: that says nothing of this one",
}


def _row(commit: Step, recover: Step, roll_back: Step, abort: Step) -> Mapping[Wish, Step]:
    return {Wish.COMMIT: commit, Wish.RECOVER: recover, Wish.ROLL_BACK: roll_back, Wish.ABORT: abort}


_S, _T = Step, Standing
STEPS: Final[Mapping[Standing, Mapping[Wish, Step]]] = {
    #                    commit               recover                roll back               abort
    _T.GONE:        _row(_S.TELL,             _S.TELL,               _S.TELL,                _S.REMOVE_REMAINS),
    _T.REMAINS:     _row(_S.TELL,             _S.TELL,               _S.TELL,                _S.REMOVE_REMAINS),
    _T.CLAIMED:     _row(_S.REMOVE_CLAIMED,   _S.REMOVE_CLAIMED,     _S.REMOVE_CLAIMED,      _S.REMOVE_CLAIMED),
    _T.OPEN:        _row(_S.DECIDE,           _S.DECIDE_IF_FORCED,   _S.DECIDE_AGAINST,      _S.DECIDE_AGAINST),
    _T.INTENDED:    _row(_S.DECIDE,           _S.DECIDE_AS_INTENDED, _S.DECIDE_AGAINST,      _S.DECIDE_AGAINST),
    _T.ABORTED:     _row(_S.REFUSE_ABORTED,   _S.REFUSE_ABORTED,     _S.CLEAN_UP_ABORTED,    _S.CLEAN_UP_ABORTED),
    _T.EMPTIED:     _row(_S.REMOVE_EMPTIED,   _S.REMOVE_EMPTIED,     _S.REMOVE_EMPTIED,      _S.REMOVE_EMPTIED),
    _T.DECIDED:     _row(_S.PUBLISH,          _S.PUBLISH,            _S.TAKE_BACK,           _S.REFUSE_DECIDED),
    _T.FENCED:      _row(_S.TAKE_BACK,        _S.TAKE_BACK,          _S.TAKE_BACK,           _S.REFUSE_DECIDED),
    _T.REFUSED:     _row(_S.TAKE_BACK,        _S.TAKE_BACK,          _S.TAKE_BACK,           _S.REFUSE_DECIDED),
    _T.COMMITTED:   _row(_S.FINISH,           _S.FINISH,             _S.REFUSE_COMMITTED,    _S.LEAVE),
    _T.ROLLED_BACK: _row(_S.UNDO,             _S.UNDO,               _S.UNDO,                _S.LEAVE),
    _T.FINISHED:    _row(_S.FINISH,           _S.FINISH,             _S.REFUSE_COMMITTED,    _S.LEAVE),
    _T.TAKEN_BACK:  _row(_S.CLEAN_UP_TAKEN_BACK, _S.CLEAN_UP_TAKEN_BACK, _S.CLEAN_UP_TAKEN_BACK, _S.LEAVE),
    _T.KEPT:        _row(_S.CLEAN_UP_KEPT,    _S.CLEAN_UP_KEPT,      _S.REFUSE_COMMITTED,    _S.LEAVE),
    _T.ONLY_OUTCOME: _row(_S.REMOVE_OUTCOME,  _S.REMOVE_OUTCOME,     _S.REMOVE_OUTCOME,      _S.LEAVE),
    _T.STALE:       _row(_S.REMOVE_STALE,      _S.REMOVE_STALE,        _S.REMOVE_STALE,         _S.REFUSE_DECIDED),
    _T.REPEATED:    _row(_S.REMOVE_REPEATED,  _S.REMOVE_REPEATED,    _S.REMOVE_REPEATED,     _S.REFUSE_DECIDED),
    _T.ANEW:        _row(_S.REFUSE_ANEW,      _S.REFUSE_ANEW,        _S.REFUSE_ANEW,         _S.LEAVE),
    _T.MISTAKEN:    _row(_S.REMOVE_MISTAKEN,  _S.REMOVE_MISTAKEN,    _S.REMOVE_MISTAKEN,     _S.REMOVE_MISTAKEN),
}  # fmt: skip
"""The step that follows, by where the job stands and what is wanted."""

LEADS_TO: Final[Mapping[Step, Standing]] = {
    Step.DECIDE: Standing.DECIDED,
    Step.DECIDE_AS_INTENDED: Standing.DECIDED,
    Step.DECIDE_IF_FORCED: Standing.DECIDED,
    Step.DECIDE_AGAINST: Standing.ABORTED,
    Step.CLEAN_UP_ABORTED: Standing.GONE,
    Step.REMOVE_EMPTIED: Standing.GONE,
    Step.PUBLISH: Standing.COMMITTED,
    Step.FINISH: Standing.GONE,
    Step.TAKE_BACK: Standing.ROLLED_BACK,
    Step.UNDO: Standing.TAKEN_BACK,
    Step.CLEAN_UP_TAKEN_BACK: Standing.GONE,
    Step.CLEAN_UP_KEPT: Standing.KEPT,
    Step.REMOVE_REMAINS: Standing.GONE,
    Step.REMOVE_CLAIMED: Standing.GONE,
    Step.REMOVE_OUTCOME: Standing.GONE,
    Step.REMOVE_STALE: Standing.GONE,
    Step.REMOVE_REPEATED: Standing.GONE,
    Step.REMOVE_MISTAKEN: Standing.OPEN,
}
"""Where a step brings a job that no other driver is at; the others change nothing. With `outcome_kept` a committed job
ends as kept, not gone.
"""

DECIDING: Final = frozenset({Step.DECIDE, Step.DECIDE_AS_INTENDED, Step.DECIDE_IF_FORCED})
"""The steps that come to a decision to commit a job."""

CARRYING_OUT: Final = frozenset({Step.PUBLISH, Step.TAKE_BACK, Step.UNDO, Step.FINISH})
"""The steps that carry one out, which any number of drivers may take at once."""

REFUSING: Final = frozenset({Step.REFUSE_DECIDED, Step.REFUSE_ABORTED, Step.REFUSE_COMMITTED, Step.REFUSE_ANEW})
"""The steps that only raise."""


def step_for(standing: Standing, wish: Wish) -> Step:
    """The step that follows."""
    return STEPS[standing][wish]

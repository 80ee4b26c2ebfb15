"""Pure table: from the records that stand in a job's directory to the job's standing, and to the action of each wish."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple


class Seen(NamedTuple):
    """Records found in a job's directory. `setup` was read after the others."""

    setup: bool
    opened: str | None  # None, "open", "closed"
    decision: str | None  # None, "commit", "abort"
    outcome: str | None  # None, "committed", "rolled-back"
    kept: bool = False  # the record of a committed job that keeps its outcome
    intent: bool = False
    anything: bool = True  # any name at all


# Action of each wish (commit, recover, rollback, abort, cleanup with force) for each standing.
ACTIONS: dict[str, dict[str, str]] = {
    "gone": dict.fromkeys(("commit", "recover", "rollback", "abort", "force"), "report"),
    "kept": {"commit": "report", "recover": "report", "rollback": "report", "abort": "report", "force": "remove"},
    "arriving": {"commit": "report", "recover": "close", "rollback": "close", "abort": "close", "force": "close"},
    "over": dict.fromkeys(("commit", "recover", "rollback", "abort", "force"), "remove"),
    "open": {"commit": "decide", "recover": "refuse", "rollback": "abort", "abort": "abort", "force": "abort"},
    "intended": {"commit": "decide", "recover": "decide", "rollback": "abort", "abort": "abort", "force": "abort"},
    "aborted": {"commit": "refuse", "recover": "refuse", "rollback": "remove", "abort": "remove", "force": "remove"},
    "decided": {"commit": "publish", "recover": "publish", "rollback": "undo", "abort": "refuse", "force": "publish"},
    "committed": {"commit": "finish", "recover": "finish", "rollback": "refuse", "abort": "finish", "force": "finish"},
    "rolled back": dict.fromkeys(("commit", "recover", "rollback", "abort", "force"), "undo"),
}


def classify(seen: Seen) -> str:
    """Returns the standing of a job; the first rule that fits."""
    if not seen.anything:
        return "gone"
    if seen.kept and not (seen.setup and seen.decision and seen.outcome):
        return "kept"
    if seen.opened is None and seen.decision is None and seen.outcome is None:
        return "arriving"
    if not seen.setup or seen.opened != "open":
        return "over"
    if seen.decision is None:
        return "over" if seen.outcome else "intended" if seen.intent else "open"
    if seen.decision == "abort":
        return "aborted"
    return {None: "decided", "committed": "committed", "rolled-back": "rolled back"}[seen.outcome]


def combinations() -> list[Seen]:
    """Returns every combination of records."""
    words = product(
        (True, False), (None, "open", "closed"), (None, "commit", "abort"), (None, "committed", "rolled-back"),
        (True, False), (True, False),
    )  # fmt: skip
    return [Seen(*each, anything=any(each)) for each in words]

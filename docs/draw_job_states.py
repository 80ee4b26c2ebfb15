"""Writes docs/job-states.md from the table that the engine goes by: ``python docs/draw_job_states.py``."""

from __future__ import annotations

from pathlib import Path

from committer.committers.standing import LEADS_TO, MEANINGS, STEPS, Standing, Step, Wish

LATE = (Standing.GONE, Standing.ARRIVING, Standing.OVER)

PAGE = Path(__file__).with_name("job-states.md")

HEAD = """\
# Where a job stands, and what follows

Nothing but the records in a job's directory says where the job stands. So any driver can go on from where another one
stopped. `commit`, `recover`, `recover(rollback=True)` and `abort` are one loop: the driver looks where the job stands,
takes the step that the table names, and goes on from where that led, until a step ends the call. Each step may run
again, or beside another driver of the same job; it then does what is left to do. When a step fails, the driver looks
again: another driver may have brought the job on, and then the table says what follows. Otherwise the caller gets the
error.

`docs/draw_job_states.py` writes this page from `committer/committers/standing.py`, which is the table that the code
goes by.

"""


def _name(standing: Standing) -> str:
    return standing.value.replace(" ", "_")


def diagram() -> list[str]:
    """The states that a job passes through, with the steps that lead from one to the next."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> open: open_job"]
    lines.append("    open --> intended: declare the intent (commit)")
    for standing, steps in STEPS.items():
        wishes: dict[Step, list[str]] = {}
        for wish, step in steps.items():
            wishes.setdefault(step, []).append(wish.value)
        for step, asked in wishes.items():
            after = LEADS_TO.get(step)
            # The table alone shows directories that were never opened, or are over: no job passes through them.
            if after is None or standing in LATE:
                continue
            what = step.value.rpartition("; ")[2]
            lines.append(f"    {_name(standing)} --> {_name(after)}: {what} ({', '.join(asked)})")
    lines.append("    decided --> refused: a publish action is refused for good (commit, recover)")
    lines.append("    kept --> [*]")
    lines.append("    gone --> [*]")
    return [*lines, "```"]


def tables() -> list[str]:
    """The step that follows, and what each name means."""
    head = ["", *(wish.value for wish in Wish)]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    lines += [f"| **{standing.value}** | " + " | ".join(steps.values()) + " |" for standing, steps in STEPS.items()]
    lines += ["", "## What the names mean", "", "| the job is | which means |", "| --- | --- |"]
    lines += [f"| **{standing.value}** | {meaning} |" for standing, meaning in MEANINGS.items()]
    return lines


def page() -> str:
    """The whole page."""
    table = ["", "## The step that follows", "", "A row is where the job stands, a column what the caller wants.", ""]
    return HEAD + "\n".join(["## The way of a job", "", *diagram(), *table, *tables()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Answers ``committer explain`` and ``committer options``."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec

from committer.cli.output import Answer, Part, copyable, line, pairs, table
from committer.cli.session import Session
from committer.cli.text import Exit
from committer.committers.registry import BUILT_IN, suited_committer
from committer.errors import UnsupportedError
from committer.layout import JobLayout, check_job_id
from committer.options.config import CommitterConfig
from committer.options.table import BY_FIELD, OPTIONS
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store

_ANY_JOB = "JOB_ID"
_ANY_SETUP = "SETUP"


def chosen_committer(store: Store) -> tuple[str, str, list[str]]:
    """Returns a store's committer, the reason, and what the store lacks for it."""
    chosen = suited_committer(store)
    name, can = chosen.name, store.capabilities
    lacking = [words for ability, words in chosen.needs.items() if not getattr(can, ability)]
    if lacking:
        why = f"{name} is the default of {store.scheme}: paths, but the store cannot {' and '.join(lacking)}"
    elif can.atomic_file_rename:
        why = f"the default of {store.scheme}: paths; the store renames atomically and creates exclusively"
    else:
        has = "makes files of blocks" if can.publishes_block_lists else "has uploads"
        why = f"the default of {store.scheme}: paths; the store renames nothing, and {has}"
    return name, why, lacking


async def explain(session: Session, uri: str, job_id: str | None) -> Answer:
    """Describes a job at a destination; no store call."""
    destination = StorePath.of(uri)
    known = check_job_id(job_id) if job_id is not None else _ANY_JOB
    config, (described, layout) = session.config, await _described(session, destination, known)
    places = {
        "job": str(layout.job_directory),
        "task attempts": str(layout.tasks),
        "task records (listing)": str(layout.manifests),
        "task records (message)": str(layout.attempts),
        "decision": str(layout.decision),
        "success marker": str(layout.success) if config.mark_successful_jobs else "",
        "summary report": (
            str(layout.summary(StorePath.of(config.summary_report_directory)))
            if config.summary_report_directory
            else ""
        ),
    }
    rows = config.explain().rows
    parts: list[Part] = [
        line(f"a job at {destination}", "bold"),
        pairs([(name.replace("_", " "), words) for name, words in described.items()], indent=2),
        line(""),
        line("places", "bold"),
        *(line_of for name, place in places.items() if place for line_of in (line(name, indent=2), copyable(place, 4))),
        line(""),
        table(
            ("choice", "value", "from"),
            [(row.field, "none" if row.value is None else repr(row.value), row.origin) for row in rows],
        ),
    ]
    data: dict[str, object] = {
        "destination": str(destination),
        **described,
        "places": places,
        "choices": [{"field": row.field, "value": row.value, "origin": row.origin, "key": row.key} for row in rows],
    }
    code = Exit.FAILED if described["committer"] == "none" else Exit.OK
    return Answer(data, parts, code)


async def _described(session: Session, destination: StorePath, job_id: str) -> tuple[dict[str, str], JobLayout]:
    """Describes committer and store, and returns the job's layout; reports a store that is not installed."""
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(session.store(destination))
        except UnsupportedError as error:
            described = {"committer": "none", "why": error.message, "next_step": error.next_step}
            return described, JobLayout(destination, job_id, setup=_ANY_SETUP)
        name, why, lacking = chosen_committer(store)
        others, not_here = _others(store.capabilities, name)
        rate = session.config.io_rate_for(store.scheme, store.capabilities.default_io_rate)
        described = {
            "committer": "none" if lacking else name,
            "why": why,
            "calls_in_flight": f"{session.config.io_concurrency:,}",
            "calls_a_second": f"{rate:,.0f}" if rate else "unlimited",
            "lacks": ", ".join(_lacks(store.capabilities)),
            "others": "; ".join(others),
            "not_here": "; ".join(not_here),
        }
        return described, suited_committer(store).listed_layout(destination, job_id, setup=_ANY_SETUP)


def _others(can: Capabilities, chosen: str) -> tuple[list[str], list[str]]:
    """Names the other committers that a job there can have, with their limits, and those that it cannot have."""
    suited: list[str] = []
    unsuited: list[str] = []
    for name, kind in sorted(BUILT_IN.items()):
        lacking = [words for ability, words in kind.needs.items() if not getattr(can, ability)]
        if name == chosen:
            continue
        if lacking:
            unsuited.append(f"{name} (the store cannot {lacking[0]})")
        else:
            suited.append(f"{name} (unsafe: {kind.unsafe})" if kind.unsafe else name)
    return suited, unsuited


def _lacks(can: Capabilities) -> list[str]:
    said = (
        (
            can.atomic_directory_rename or not can.atomic_file_rename,
            "atomic directory renames (no promotion; rolling back needs --force)",
        ),
        (can.identity, "identities of files (a lost answer may stay unknown)"),
        (can.hard_links or not can.directories, "hard links (a job that replaces a file can only go forward)"),
    )
    return [words for has, words in said if not has]


def options() -> Answer:
    """Lists every option with default and key, and every Hadoop key without effect."""
    fields = {field.name: field for field in msgspec.structs.fields(CommitterConfig)}
    parts: list[Part] = [line("choices: -o NAME=VALUE or -o KEY=VALUE", "bold")]
    data: list[dict[str, object]] = []
    for name, field in fields.items():
        option = BY_FIELD[name]
        default = "none" if field.default is None else repr(field.default)
        parts += [line(f"{name}, default {default}", indent=2), copyable(option.key, 6)]
        note = option.note
        if option.when is not None:
            note = f"by its key: false means {option.when[0]}, true means {option.when[1]}"
        if note:
            parts.append(line(note, "dim", indent=6))
        also = [other for other in OPTIONS if other.field == name and other.also]
        for other in also:
            parts += [copyable(other.key, 6), line(other.note, "dim", indent=6)]
        data.append({"field": name, "default": field.default, "key": option.key, "read_as": option.kind, "note": note})
    parts += [line(""), line("keys of Hadoop's without effect here", "bold")]
    ignored = [option for option in OPTIONS if not option.field]
    for option in ignored:
        key = f"{option.key}<scheme>" if option.key.endswith(".") else option.key
        parts += [copyable(key, 2), line(option.note, "dim", indent=6)]
    return Answer(
        {"choices": data, "without_effect": [{"key": option.key, "note": option.note} for option in ignored]}, parts
    )

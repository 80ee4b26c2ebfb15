"""Storage options of the job side: those of the session's JVM, unless given otherwise.

The JVM sends its Hadoop keys with each request, in memory or through a pipe. They appear in no record, plan or
log, and tasks do not get them: they use their own JVM's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from committer.advice import page
from committer.errors import CommitterError, ConfigurationError
from committer.options.references import FORMS, Found
from committer.options.storage import OptionTable, check_text
from committer.paths import StorePath
from committer.stores.registry import options_of

OWN: Final = "committer.storage."
"""Prefix of session keys for Python alone, followed by the name of a store's option."""

_SERVED: Final = ("abfss", "gs", "hdfs", "s3a")
_SHOWN: Final = "Spark shows settings in its UI and logs"


def checked(given: Mapping[str, object] | None) -> dict[str, object] | None:
    """Checks that one store knows all storage options of `configure`."""
    if given is None or any(_understands(options_of(scheme), given) for scheme in _SERVED):
        return None if given is None else dict(given)
    raise ConfigurationError(
        f"no store has all of the storage options {', '.join(map(str, given))}",
        operation="configure",
        next_step=f"give those of one store, by the names on its page: {page('options.md#storage-options')}",
    )


def _understands(table: OptionTable | None, given: Iterable[str]) -> bool:
    try:
        return table is not None and all(table.decided_by(key) is not None for key in given)
    except ConfigurationError:
        return False


def storage_options_of(
    destination: StorePath,
    session: Mapping[str, str],
    choices: Mapping[str, str],
    given: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Returns the storage options for a destination. Blocks if a reference names a file.

    `session` has Hadoop's keys; keys in `choices` with the prefix `OWN` are options by their own names. Options
    `given` to `configure` win over both if they are for this store.
    """
    table = options_of(destination.scheme)
    own = {key.removeprefix(OWN): value for key, value in choices.items() if key.startswith(OWN)}
    for key, value in own.items():
        check_text(table, key, value, shown=f"spark.hadoop.{OWN}{key}", why=_SHOWN)
    explicit: dict[str, object] = {key: Found.by(value, f"{OWN}{key}") for key, value in own.items()}
    explicit |= given if given is not None and _understands(table, given) else {}
    if table is None:
        return explicit
    return _of_session(table, destination, session, explicit) | explicit


def _of_session(
    table: OptionTable, destination: StorePath, session: Mapping[str, str], explicit: Mapping[str, object]
) -> dict[str, object]:
    """Returns the session's options that `explicit` does not set; an explicit credential replaces all of the
    session's.
    """
    decided = {option.name: option for key in explicit if (option := table.decided_by(key)) is not None}
    found: dict[str, object] = {
        key: value for key, value in session.items() if key.lower().startswith(table.hadoop_families or ("\0",))
    }
    access: dict[str, object] = {}
    for key, value in table.of_hadoop(session).items():
        option = table.find(key)
        if not table.is_for(key, destination.authority) or (option is not None and option.name in decided):
            continue
        lets_in = table.hadoop_base(key.lower()) in table.hadoop_access
        if lets_in or (option is not None and (option.secret or option.goes_with)):
            access[key] = value
        else:
            found[key] = value
    if any(option.secret or option.instance for option in decided.values() if option.name != "http_session"):
        return found
    named = {str(value).strip().rpartition(".")[2] for value in access.values()}
    # The store itself looks where these Hadoop providers look, if it gets no credentials.
    return found if named & set(table.hadoop_found) else found | access


def says_how_to_reach(error: CommitterError, destination: StorePath) -> None:
    """Adds to a refusal how to give Python other storage options."""
    if destination.scheme != "file":
        error.next_step = (
            f"{error.next_step}; Python takes other storage options than the JVM by spark.hadoop.{OWN}NAME={FORMS}"
        )

"""How the job side of Spark's commit protocol reaches the destination: as the session's JVM, unless told otherwise.

The JVM sends the keys of its Hadoop configuration with each question, in memory or by a pipe. They go into no record,
plan or log, and not to tasks, which go by the configuration of their own JVM.
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
"""What keys of the session begin with that are for Python alone, by the names of the store's options."""

_SERVED: Final = ("abfss", "gs", "hdfs", "s3a")
_SHOWN: Final = "Spark shows settings in its UI and logs"


def checked(given: Mapping[str, object] | None) -> dict[str, object] | None:
    """The storage options that `configure` was given, for whichever store has them.

    Raises:
        ConfigurationError: No store has them all.
    """
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
    """The storage options for a destination. Blocks where a reference leads to a file.

    Args:
        destination: Where the job writes.
        session: Hadoop's keys that the session gives, without Spark's prefix.
        choices: Keys of the session, of which those that begin with `OWN` are options by their own names.
        given: What this process was told, which wins over both, if it is for this store.

    Raises:
        ConfigurationError: An option is unknown, or a secret stands where others can read it.
        UnsupportedError: There is no store for the destination.
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
    """What the session says and `explicit` does not: a credential that is given replaces all of the session's."""
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
    # What Hadoop finds on the machine, the store finds there too, where nothing else is given.
    return found if named & set(table.hadoop_found) else found | access


def says_how_to_reach(error: CommitterError, destination: StorePath) -> None:
    """Adds to the refusal of what a session says how Python can be told something else."""
    if destination.scheme != "file":
        error.next_step = (
            f"{error.next_step}; Python takes other storage options than the JVM by spark.hadoop.{OWN}NAME={FORMS}"
        )

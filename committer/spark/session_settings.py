"""Reads what a session's settings say of a write: its options, and how its store is reached.

A write by Python reads a classic session's ``spark.hadoop.*`` keys. Only keys in the Spark configuration count, not
Hadoop's defaults; values come from the session's Hadoop configuration. A secret's value is never read, because Spark
shows options in plans and logs and py4j logs its traffic (DEBUG): an error asks for a reference.

To the job side of the commit protocol the JVM sends its Hadoop keys with each request, in memory or through a pipe.
They appear in no record, plan or log, and tasks do not get them: they use their own JVM's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from committer.advice import page
from committer.errors import CommitterError, ConfigurationError, StorePermissionError
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.options.references import FORMS, Found
from committer.options.resolved import for_place, of_one_place, resolve
from committer.options.storage import OptionTable, StorageOption, check_text
from committer.options.table import BY_KEY, FACTORY_SCHEME, OPTIONS, S3A
from committer.options.values import SPARK_HADOOP
from committer.paths import StorePath
from committer.spark.options import STORAGE, parse_options, spelled_as_hadoop
from committer.spark.sessions import is_connect
from committer.stores.registry import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = job_logger("committer.spark")
# Replacement for a session's conflict mode that the save mode overrides.
_INSTEAD: Final[Mapping[tuple[str | None, object], str]] = {
    ("append", "fail"): "give the write the option conflict_mode=fail",
    ("append", "replace"): "give the write the mode overwrite, and partitionOverwriteMode",
    ("overwrite", "fail"): "give the write the mode append and the option conflict_mode=fail",
}
# Fields that the save mode decides.
_OF_THE_MODE: Final = frozenset({"conflict_mode", "superseded_scope", "superseded_directories"})
USER_INFO: Final = re.compile(r"://[^/]*@")
"""Beginning of a URL that holds a user's name or password."""


def set_by_user(df: DataFrame, path: str) -> dict[str, str]:
    """Reads the Hadoop keys that a DataFrame's session sets, without prefix; empty if it cannot be read (Connect).

    Values are read only of commit options and of the settings for the store of `path` that are no secrets; other
    keys have an empty text.
    """
    if is_connect(df):
        return {}
    place = StorePath.of(path)
    try:
        java = df.sparkSession.sparkContext._jsc
        hadoop = java.hadoopConfiguration()
        # SparkContext.getConf() would send all values, secrets included, through py4j.
        named = [str(pair._1()) for pair in java.getConf().getAll()]
        keys = [key.removeprefix(SPARK_HADOOP) for key in named if key.startswith(SPARK_HADOOP)]
        return {key: value for key in keys if (value := hadoop.get(key) if _counts(key, place) else "") is not None}
    except Exception as error:  # a platform may forbid it
        _LOG.debug("the session's Hadoop configuration cannot be read: %s", type(error).__name__)
        return {}


def _counts(key: str, place: StorePath) -> bool:
    """Reports whether a write to `place` needs the value of a key."""
    if _is_choice(key):
        return True
    table = options_of(place.scheme)
    if table is None or not table.is_hadoop(key) or not table.is_for(key, place.authority):
        return False
    option = table.find(key)
    return option is None or not option.secret


def _is_choice(key: str) -> bool:
    return key in BY_KEY or key.startswith((FACTORY_SCHEME, S3A)) or of_one_place(key) is not None


def add_from_session(
    df: DataFrame,
    settings: dict[str, str],
    config: ConfigLike | None = None,
    process: CommitterConfig | None = None,
    *,
    has_mode: bool = True,
) -> str:
    """Adds the session's settings to a write's options in place; returns how to pass the session's secrets, if needed.

    Options in `config` win, a `CommitterConfig` over all; `process`, the options of `configure`, replaces the
    session's. A write without a save mode takes the session's choices about conflicts, too.
    """
    path = parse_options({"path": settings["path"]}).path
    session = set_by_user(df, path)
    if not session and process is None:
        return ""
    own = [key for key in settings if not key.lower().startswith(STORAGE)]
    storage = [key[len(STORAGE) :] for key in settings if key.lower().startswith(STORAGE)]
    reach, withheld = store_settings(session, path, storage)
    if not isinstance(config, CommitterConfig):
        mode = (settings.get("existing") or "append") if has_mode else None
        given = [*own, *(config or ())]
        if process is not None:
            taken = _fields_of(given)
            process = process.replace(absolute_roots=roots_beside(process.absolute_roots, StorePath.of(path)))
            chosen = {field: value for field, value in changed(process).items() if field not in taken}
        else:
            chosen = choices_of(session, given, mode=mode, place=StorePath.of(path))
        settings.update({key: as_option(value) for key, value in chosen.items()})
    settings.update({f"{STORAGE}{key}": value for key, value in reach.items()})
    return withheld


def with_choices(options: Mapping[str, str], choices: Mapping[str, str]) -> dict[str, str]:
    """Adds `choices`, by field of `CommitterConfig`, that a write's options do not set under either name."""
    given = _fields_of(options)
    return {**{field: text for field, text in choices.items() if field not in given}, **options}


def changed(config: CommitterConfig) -> dict[str, object]:
    """Returns the options that differ from their defaults, by field."""
    defaults = CommitterConfig()
    return {field: value for field, value in config.to_record().items() if value != getattr(defaults, field)}


def config_options(config: ConfigLike | None) -> dict[str, str]:
    """Returns the options of a call's `config` as texts."""
    choices = config_of(config)
    return {} if choices is None else {field: as_option(value) for field, value in changed(choices).items()}


def as_option(value: object) -> str:
    """Returns a value as the text of an option."""
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def telling(withheld: str) -> Iterator[None]:
    """Adds to a refusal of credentials how to pass the session's secrets."""
    try:
        yield
    except StorePermissionError as error:
        if withheld:
            error.next_step = f"{withheld}; {error.next_step}"
        raise


def choices_of(
    session: Mapping[str, str],
    given: Iterable[str],
    *,
    mode: str | None = "append",
    place: StorePath | None = None,
    whose: str = "the session's Hadoop configuration",
) -> dict[str, object]:
    """Returns the commit options that a session sets, by field of `CommitterConfig`; logs unknown ones.

    Args:
        given: Keys of the write's own options, which win, under either name.
        mode: The save mode, which decides about conflicts; None if the session does.
        whose: Origin of the keys, for the log.
    """
    found = resolve(session if place is None else for_place(session, place))
    taken = _fields_of(given)
    instead = _INSTEAD.get((mode, found.values.get("conflict_mode")))
    if instead and "conflict_mode" not in taken:
        said = f"{found.origins['conflict_mode']} is {found.values['conflict_mode']}"
        found.warnings.append(f"{said}, which has no effect here: the save mode {mode} decides; {instead}")
    for said in found.warnings:
        _LOG.warning("of %s: %s", whose, said)
    taken |= _OF_THE_MODE if mode is not None else frozenset()
    chosen: dict[str, Any] = {field: value for field, value in found.values.items() if field not in taken}
    CommitterConfig(**chosen)
    if place is not None and "absolute_roots" in chosen:
        chosen["absolute_roots"] = roots_beside(chosen["absolute_roots"], place)
    return chosen


def roots_beside(roots: Iterable[str], destination: StorePath) -> tuple[str, ...]:
    """Selects the absolute roots of a session that one destination can use.

    A session names roots for all of its tables. A job cannot use a root of another store, nor one that equals,
    contains or lies in its destination.
    """
    kept = []
    for root in roots:
        place = StorePath.of(root)
        if root.startswith("/"):
            place = StorePath(destination.scheme, destination.authority, place.path)
        nested = place == destination or place.is_under(destination) or destination.is_under(place)
        if (place.scheme, place.authority) == (destination.scheme, destination.authority) and not nested:
            kept.append(root)
    return tuple(kept)


def store_settings(session: Mapping[str, str], path: str, given: Iterable[str]) -> tuple[dict[str, str], str]:
    """Returns the storage options that a session sets for a destination, and how to pass the secrets that it withholds.

    Options go by Hadoop's keys; `given` keys, in any tool's spelling, win.
    """
    place = StorePath.of(path)
    table = options_of(place.scheme)
    if table is None:
        return {}, ""
    others = {key: value for key, value in session.items() if not _is_choice(key)}
    _tell_unknown(place.scheme, tuple(table.unknown_of_hadoop(others, place.authority)))
    explicit = _named(table, given)
    options: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for key, value, option in _for_store(table, session, place, explicit):
        if table.hadoop_base(key.lower()) in table.hadoop_access:
            continue
        if option is None:
            options[key] = value
        elif option.goes_with and option.goes_with not in explicit:
            continue
        elif option.secret or USER_INFO.search(value):
            secrets[key] = option.name
        else:
            options[key] = value
    missed = bool(secrets) and not any(option.secret for option in explicit.values())
    return options, _withheld(secrets) if missed else ""


def _named(table: OptionTable, given: Iterable[str]) -> dict[str, StorageOption]:
    """Returns the options that keys in any tool's spelling decide, by name."""
    return {option.name: option for key in given if (option := table.decided_by(key)) is not None}


def _for_store(
    table: OptionTable, session: Mapping[str, str], place: StorePath, explicit: Container[str]
) -> Iterator[tuple[str, str, StorageOption | None]]:
    """Yields the session's settings for the store of a place that no explicit option replaces."""
    for key, value in table.of_hadoop(session).items():
        option = table.find(key)
        if table.is_for(key, place.authority) and (option is None or option.name not in explicit):
            yield key, value, option


def _fields_of(given: Iterable[str]) -> set[str]:
    """Returns the keys in lower case, and the fields that those in Hadoop's spelling set."""
    folded = {key.lower() for key in given}
    hadoop = {spelled_as_hadoop(key) for key in folded}
    return folded | {option.field for option in OPTIONS if option.field and option.key in hadoop}


@lru_cache(maxsize=64)
def _tell_unknown(scheme: str, keys: tuple[str, ...]) -> None:
    """Warns once, not at each write, of session keys that have no effect."""
    if keys:
        _LOG.warning(
            "of the session's Hadoop configuration: %s have no effect on what the store of %s: reads and writes here; "
            "what it understands is at %s",
            ", ".join(keys),
            scheme,
            page("options.md#storage-options"),
        )


def _withheld(secrets: Mapping[str, str]) -> str:
    keys = ", ".join(f"{SPARK_HADOOP}{key}" for key in secrets)
    references = ", ".join(f"{STORAGE}{name}=env:NAME" for name in dict.fromkeys(secrets.values()))
    return (
        f"the session's {keys} cannot be used by a write through Spark, whose plans and logs show options:"
        f" give {references}, where NAME is an environment variable of the driver and of every executor"
    )


# -- storage options of the job side -----------------------------------------------------------------------------------

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
    decided = _named(table, explicit)
    found: dict[str, object] = {
        key: value for key, value in session.items() if key.lower().startswith(table.hadoop_families or ("\0",))
    }
    access: dict[str, object] = {}
    for key, value, option in _for_store(table, session, destination, decided):
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

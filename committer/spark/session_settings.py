"""What the configuration of a classic session says to a write: keys ``spark.hadoop.*`` that its user set.

Hadoop's own defaults say nothing here: only keys that stand in the Spark configuration count, with the values that the
session's Hadoop configuration has for them. A secret's value is never asked for: Spark shows options in plans and logs,
and py4j logs what it carries (DEBUG). Its user is told how to give it by reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from committer.advice import page
from committer.errors import StorePermissionError
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike
from committer.options.resolved import for_place, of_one_place, resolve
from committer.options.table import FACTORY_SCHEME, OPTIONS, S3A
from committer.options.values import SPARK_HADOOP
from committer.paths import StorePath
from committer.spark.options import parse_options, spelled_as_hadoop
from committer.spark.sessions import is_connect
from committer.stores.registry import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = job_logger("committer.spark")
_STORAGE: Final = "storage."
_KEYS: Final = frozenset(option.key for option in OPTIONS)
# How a write gets what the session's conflict mode asks for, where its save mode decides otherwise.
_INSTEAD: Final[Mapping[tuple[str | None, object], str]] = {
    ("append", "fail"): "give the write the option conflict_mode=fail",
    ("append", "replace"): "give the write the mode overwrite, and partitionOverwriteMode",
    ("overwrite", "fail"): "give the write the mode append and the option conflict_mode=fail",
}
# What a save mode decides, where there is one.
_OF_THE_MODE: Final = frozenset({"conflict_mode", "superseded_scope", "superseded_directories"})
_USER_INFO: Final = re.compile(r"://[^/]*@")


class StoreSettings(NamedTuple):
    """What a session says of a store.

    Attributes:
        options: Storage options by Hadoop's keys, none of them a secret.
        withheld: How to give the secrets that the session holds; empty where they are not missed.
    """

    options: dict[str, str]
    withheld: str


def set_by_user(df: DataFrame, path: str) -> dict[str, str]:
    """The Hadoop configuration of a DataFrame's session, as far as its Spark configuration sets it; without prefix.

    Empty where the session can't be asked, as in Spark Connect.

    Args:
        df: What is written.
        path: The destination. Of keys that are no choices of a commit, and say nothing of its store but a secret, the
            value is not asked for: it is the empty text.
    """
    if is_connect(df):
        return {}
    place = StorePath.of(path)
    try:
        java = df.sparkSession.sparkContext._jsc
        hadoop = java.hadoopConfiguration()
        # SparkContext.getConf() would carry all values here, and back.
        named = [str(pair._1()) for pair in java.getConf().getAll()]
        keys = [key.removeprefix(SPARK_HADOOP) for key in named if key.startswith(SPARK_HADOOP)]
        return {key: value for key in keys if (value := hadoop.get(key) if _counts(key, place) else "") is not None}
    except Exception as error:  # a platform may forbid it
        _LOG.debug("the session's Hadoop configuration cannot be read: %s", type(error).__name__)
        return {}


def _counts(key: str, place: StorePath) -> bool:
    """Whether the value of a key, and not only that it is set, bears on a write to a place."""
    if _is_choice(key):
        return True
    table = options_of(place.scheme)
    if table is None or not table.is_hadoop(key) or not table.is_for(key, place.authority):
        return False
    option = table.find(key)
    return option is None or not option.secret


def _is_choice(key: str) -> bool:
    return key in _KEYS or key.startswith((FACTORY_SCHEME, S3A)) or of_one_place(key, _KEYS) is not None


def add_from_session(
    df: DataFrame,
    settings: dict[str, str],
    config: ConfigLike | None = None,
    process: CommitterConfig | None = None,
) -> str:
    """Adds to the options of a write what its session says and they do not.

    Args:
        df: What is written.
        settings: The options, ``path`` among them.
        config: Choices that win over the session's: a `CommitterConfig` over all of them.
        process: The choices that `configure` was given, in place of those of the session's keys.

    Returns:
        How to give the secrets that the session holds; empty where they are not missed.

    Raises:
        ConfigurationError: A value is not one its option takes.
    """
    path = parse_options({"path": settings["path"]}).path
    session = set_by_user(df, path)
    if not session and process is None:
        return ""
    own = [key for key in settings if not key.lower().startswith(_STORAGE)]
    storage = [key[len(_STORAGE) :] for key in settings if key.lower().startswith(_STORAGE)]
    store = store_settings(session, path, storage)
    if not isinstance(config, CommitterConfig):
        mode = settings.get("existing") or "append"
        given = [*own, *(config or ())]
        if process is not None:
            taken = _fields_of(given)
            process = process.replace(absolute_roots=roots_beside(process.absolute_roots, StorePath.of(path)))
            chosen = {field: value for field, value in changed(process).items() if field not in taken}
        else:
            chosen = choices_of(session, given, mode=mode, place=StorePath.of(path))
        settings.update({key: as_option(value) for key, value in chosen.items()})
    settings.update({f"{_STORAGE}{key}": value for key, value in store.options.items()})
    return store.withheld


def with_choices(options: Mapping[str, str], choices: Mapping[str, str]) -> dict[str, str]:
    """Options of a write, and what they do not choose of the commit, by either name of a choice.

    Args:
        options: As the data source takes them.
        choices: Values of options by field of `CommitterConfig`.
    """
    given = _fields_of(options)
    return {**{field: text for field, text in choices.items() if field not in given}, **options}


def changed(config: CommitterConfig) -> dict[str, object]:
    """The choices that are not at their defaults, by field."""
    defaults = CommitterConfig()
    return {field: value for field, value in config.to_record().items() if value != getattr(defaults, field)}


def as_option(value: object) -> str:
    """A choice as the text of an option."""
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def telling(withheld: str) -> Iterator[None]:
    """Around what needs the store: a refusal of the credentials says how to give the secrets that were withheld."""
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
    """The commit's choices that a session makes, by field of `CommitterConfig`; what is not understood is logged.

    Args:
        session: From `set_by_user`.
        given: Keys of the options that the write was given, which win, under either of their names.
        mode: The save mode, which decides about conflicts; None where the session does.
        place: The destination, whose own keys count; None where it is not known.
        whose: Where the keys stand, for the log.

    Raises:
        ConfigurationError: A value is not one its option takes.
    """
    found = resolve(session if place is None else for_place(session, place, _KEYS))
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

    Raises:
        InvalidPathError: A root is relative.
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


def store_settings(session: Mapping[str, str], path: str, given: Iterable[str]) -> StoreSettings:
    """The storage options that a session makes for a destination.

    Args:
        session: From `set_by_user`.
        path: The destination.
        given: Keys of the storage options that the write was given, in any tool's spelling; they win.

    Raises:
        ConfigurationError: One that was given is unknown.
    """
    place = StorePath.of(path)
    table = options_of(place.scheme)
    if table is None:
        return StoreSettings({}, "")
    others = {key: value for key, value in session.items() if not _is_choice(key)}
    _tell_unknown(place.scheme, tuple(table.unknown_of_hadoop(others, place.authority)))
    explicit = {option.name: option for key in given if (option := table.decided_by(key)) is not None}
    options: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for key, value in table.of_hadoop(session).items():
        option = table.find(key)
        if not table.is_for(key, place.authority) or table.hadoop_base(key.lower()) in table.hadoop_access:
            continue
        if option is None:
            options[key] = value
        elif option.name in explicit or (option.goes_with and option.goes_with not in explicit):
            continue
        elif option.secret or _USER_INFO.search(value):
            secrets[key] = option.name
        else:
            options[key] = value
    missed = bool(secrets) and not any(option.secret for option in explicit.values())
    return StoreSettings(options, _withheld(secrets) if missed else "")


def _fields_of(given: Iterable[str]) -> set[str]:
    """The keys of options in lower case, and the fields that those among them feed which are Hadoop's."""
    folded = {key.lower() for key in given}
    hadoop = {spelled_as_hadoop(key) for key in folded}
    return folded | {option.field for option in OPTIONS if option.field and option.key in hadoop}


@lru_cache(maxsize=64)
def _tell_unknown(scheme: str, keys: tuple[str, ...]) -> None:
    """Says which keys of a session have no effect here: once, and not at each write."""
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
    references = ", ".join(f"{_STORAGE}{name}=env:NAME" for name in dict.fromkeys(secrets.values()))
    return (
        f"the session's {keys} cannot be used by a write through Spark, whose plans and logs show options:"
        f" give {references}, where NAME is an environment variable of the driver and of every executor"
    )

"""Resolves a mapping of options to choices, their origins and warnings.

Hadoop's file systems prefer a key of one bucket or account to the general one
(``S3AUtils.propagateBucketOptions``, ``AbfsConfiguration.get``). S3A's committers ask the job's configuration
first, where core-default.xml sets all of their options (``S3ACommitterFactory.chooseCommitterFactory``): a
bucket's key has no effect on them, here neither.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from committer.errors import ConfigurationError
from committer.options.hadoop import hadoop_user, instead_of
from committer.options.table import (
    BUFFER_DIR,
    BY_FIELD,
    BY_KEY,
    DEFAULT_FS,
    FACTORY_SCHEME,
    FILE_OUTPUT,
    MANIFEST,
    NATIVE,
    OSS,
    OUTPUT_COMMITTER,
    S3A,
    S3A_NAME,
    STAGED,
    STAGING_TMP,
    Option,
)
from committer.options.values import asks_for, bad_option, parse, plain_keys
from committer.paths import StorePath

_S3A: Final = "fs.s3a."
_BUCKET: Final = "fs.s3a.bucket."
_AZURE: Final = "fs.azure."
_OF_COMMITTERS: Final = "fs.s3a.committer."
# Only for a bucket without a period: in any other key the end of the bucket's name is ambiguous.
_SURELY_OF_COMMITTERS: Final = re.compile(r"fs\.s3a\.bucket\.[^.]+\.(committer\..+)")


class OfOnePlace(NamedTuple):
    """A key of one bucket or account (by its host), and the general key."""

    general: str
    place: str


def of_one_place(key: str) -> OfOnePlace | None:
    """Splits a key of one bucket or account, without Spark's prefix; None for any other key.

    The general key must be in the table, unless it is certainly one of a committer.
    """
    if key.startswith(_BUCKET):
        for general in sorted((one for one in BY_KEY if one.startswith(_S3A)), key=len, reverse=True):
            ending = f".{general.removeprefix(_S3A)}"
            if key.endswith(ending) and len(key) > len(_BUCKET) + len(ending):
                return OfOnePlace(general, key.removeprefix(_BUCKET).removesuffix(ending))
        found = _SURELY_OF_COMMITTERS.fullmatch(key)
        return OfOnePlace(f"{_S3A}{found[1]}", key.removeprefix(_BUCKET).partition(".")[0]) if found else None
    if key.startswith(_AZURE):
        for general in BY_KEY:
            if general.startswith(_AZURE) and key.startswith(f"{general}."):
                return OfOnePlace(general, key.removeprefix(f"{general}."))
    return None


def for_place(options: Mapping[str, str], place: StorePath) -> dict[str, str]:
    """Returns the options that hold at a place: its own keys become general ones, other places' are left out.

    A bucket's keys of committers stay as they are.
    """
    general: dict[str, str] = {}
    own: dict[str, str] = {}
    here = place.authority.rpartition("@")[2].lower()
    for key, value in options.items():
        scoped = of_one_place(key)
        if scoped is None:
            general[key] = value
        elif scoped.place.lower() == here:
            own[key if scoped.general.startswith(_OF_COMMITTERS) else scoped.general] = value
    return {**general, **own}


_OWN_PREFIXES = (MANIFEST, FILE_OUTPUT, OUTPUT_COMMITTER, S3A, OSS, NATIVE)
_S3A_NAMES = ("directory", "partitioned", "magic", "magicv2", "file")
_NOT_STAGING_NAMES = frozenset({"magic", "magicv2", "file"})


class Resolved(NamedTuple):
    """Result of `resolve`.

    Attributes:
        values: Given values, by field.
        origins: Where they come from, by field.
        warnings: One sentence for each key without effect and each adjusted value.
        unknown: Unknown keys, as written, that begin like this library's or Hadoop's.
    """

    values: dict[str, object]
    origins: dict[str, str]
    warnings: list[str]
    unknown: list[str]


def resolve(options: Mapping[str, object]) -> Resolved:
    """Reads the options that the table knows, and ignores other keys; raises `ConfigurationError` for a bad text."""
    _refuse_no_mapping(options)
    resolved = Resolved({}, {}, [], [])
    second: list[tuple[Option, str, object]] = []
    staging_name = _staging_name(options)
    for key, written_as, value in plain_keys(options):
        option = BY_KEY.get(FACTORY_SCHEME if key.startswith(FACTORY_SCHEME) else key)
        if option is None:
            if _warned_of_one_place(key, written_as, value, resolved):
                continue
            if key.startswith(_OWN_PREFIXES):
                resolved.unknown.append(written_as)
                resolved.warnings.append(f"the option {written_as} is not known{_suggestion(key)}; it has no effect")
        elif key.startswith((STAGED, BUFFER_DIR)) and staging_name in _NOT_STAGING_NAMES:
            _warn_of(option, written_as, value, f"{S3A_NAME} is {staging_name}, which has no use for it here", resolved)
        elif key == BUFFER_DIR and str(value).strip() in (option.harmless or ()):
            continue
        elif option.also:
            place = key == STAGING_TMP
            meant = _place_of_records(written_as, value, staging_name, options, resolved) if place else value
            second.append((option, written_as, meant))
        elif option.field:
            _take(option, written_as, value, resolved)
        elif option.warns is not None:
            if asks_for(option.warns[0], written_as, value):
                resolved.warnings.append(f"the option {written_as} is {str(value).strip()}: {option.warns[1]}")
        else:
            _warn_of(option, written_as, value, option.note, resolved)
    for option, written_as, value in second:
        first = resolved.origins.get(option.field)
        if value is None:
            continue
        if first is None:
            _take(option, written_as, value, resolved)
        else:
            resolved.warnings.append(f"the option {written_as} has no effect beside {first}, which wins")
    _mean_as_staging(staging_name, resolved)
    return resolved


def _refuse_no_mapping(options: object) -> None:
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ConfigurationError(
            f"from_hadoop takes a mapping of option keys to values, not this {type(options).__name__}",
            operation="from_hadoop",
            next_step="give a dict, such as CommitterConfig.from_hadoop("
            "{'mapreduce.manifest.committer.delete.target.files': 'true'})",
        )


def _warned_of_one_place(key: str, written_as: str, value: object, resolved: Resolved) -> bool:
    """Warns of a key of one bucket or account, which no choice can have; False for any other key."""
    scoped = of_one_place(key)
    if scoped is None:
        return False
    option, text = BY_KEY.get(scoped.general), str(value).strip()
    if option is None:
        resolved.warnings.append(f"the option {written_as} is not known{_suggestion(scoped.general)}; it has no effect")
    elif not option.field and option.warns is None:
        _warn_of(option, written_as, value, option.note, resolved)
    elif option.warns is not None and not asks_for(option.warns[0], written_as, value):
        return True
    elif option.harmless is None or text.lower() not in option.harmless:
        resolved.warnings.append(
            f"the option {written_as} is of {scoped.place} alone, and has no effect here: a choice of the commit is "
            f"given by its general key, {scoped.general}"
        )
    return True


def _warn_of(option: Option, key: str, value: object, why: str, resolved: Resolved) -> None:
    text = str(value).strip()
    if option.only and text and text not in option.only:
        raise bad_option(key, value, f"it can be {' or '.join(option.only)}")
    if option.harmless is not None and text and text.lower() not in map(str.lower, option.harmless):
        instead = instead_of(text) if option.key.startswith(OUTPUT_COMMITTER) else None
        use = f"; {instead}" if instead else ""
        resolved.warnings.append(f"the option {key} is {text!r}, which has no effect here: {why}{use}")


def _staging_name(options: Mapping[str, object]) -> str:
    """Returns the S3A committer that the options name, in lower case as Hadoop compares it; empty for none."""
    for key, written_as, value in plain_keys(options):
        name = str(value).strip().lower()
        if key == S3A_NAME and name:
            if name not in _S3A_NAMES:
                instead = instead_of(name)
                use = f"; {instead}" if instead else ""
                raise bad_option(written_as, value, f"S3A has the committers {', '.join(_S3A_NAMES)}{use}")
            return name
    return ""


_SCOPE_OF = {"directory": "destination", "partitioned": "partitions"}


def _mean_as_staging(staging_name: str, resolved: Resolved) -> None:
    """Adds the superseded scope and unique names of S3A's staging committers, where no key gives them."""
    scope, origin = _SCOPE_OF.get(staging_name), resolved.origins.get("conflict_mode", "")
    if scope is None:
        return
    given: dict[str, object] = {}
    if origin.endswith(f"{STAGED}conflict-mode") and resolved.values["conflict_mode"] != "append":
        given["superseded_scope"] = scope
    given["unique_names"] = True
    for field, value in given.items():
        if field not in resolved.values:
            resolved.values[field] = value
            resolved.origins[field] = f"{S3A_NAME}={staging_name}"


def _place_of_records(
    key: str, value: object, staging_name: str, options: Mapping[str, object], resolved: Resolved
) -> str | None:
    """Returns the URI where staging committers keep task records; None for the destination."""
    text = str(value).strip()
    if not text or text in (BY_KEY[STAGING_TMP].harmless or ()):
        return None
    if "${" in text or ":" in text.partition("/")[0]:
        return text
    default = next((str(one).strip() for plain, _key, one in plain_keys(options) if plain == DEFAULT_FS), "")
    local = default.startswith("file:")
    if default and (text.startswith("/") or not local):
        below = text if text.startswith("/") else f"/user/{hadoop_user()}/{text}"
        return f"file:{below}" if local else f"{default.rstrip('/')}{below}"
    why = f"it is a path of the cluster's default file system: give a URI, or an absolute path and {DEFAULT_FS}"
    if staging_name in _SCOPE_OF:
        raise bad_option(key, value, why)
    resolved.warnings.append(f"the option {key} is {text!r}, which has no effect here: {why}")
    return None


_TRIED = {"record_save_attempts": "a record is saved", "commit_attempts": "a job is committed"}


def _take(option: Option, key: str, value: object, resolved: Resolved) -> None:
    if isinstance(value, str) and "${" in value:
        raise bad_option(key, value, "references to other options are not resolved here: give the text they stand for")
    if option.kind == "boolean" and value == "":
        return
    parsed = parse(option.kind, key, value)
    origin = key
    if option.field == "io_concurrency" and isinstance(parsed, int) and parsed <= 0:
        resolved.origins[option.field] = f"default, as {key} is not positive"
        return
    if option.field == "manifest_queue_capacity" and isinstance(parsed, int) and parsed <= 0:
        raise bad_option(key, value, "a queue needs room for one record at least")
    tried = _TRIED.get(option.field)
    if tried is not None and isinstance(parsed, int) and parsed < 1:
        resolved.warnings.append(f"the option {key} is {value!r}; {tried} in one attempt at least")
        parsed = 1
        origin = f"{key}, raised to 1"
    if option.when is not None:
        parsed = option.when[bool(parsed)]
    resolved.values[option.field] = parsed
    resolved.origins[option.field] = origin


def _suggestion(key: str) -> str:
    field = key.removeprefix(NATIVE)
    if field in BY_FIELD:
        return f", that choice is made with {BY_FIELD[field].key}"
    close = difflib.get_close_matches(key, BY_KEY, n=1, cutoff=0.75)
    return f", did you mean {close[0]}?" if close else ""

"""Hadoop's keys of one place: ``fs.s3a.bucket.BUCKET.…`` for what begins with ``fs.s3a.``, ``fs.azure.….ACCOUNT``.

Hadoop's file systems take such a key of their own place before the general one (``S3AUtils.propagateBucketOptions``,
``AbfsConfiguration.get``). S3A's committers ask the job's configuration first, which has a value of Hadoop's
core-default.xml for each of their options (``S3ACommitterFactory.chooseCommitterFactory``): there a bucket's key never
counts, and here neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from committer.paths import StorePath

_S3A: Final = "fs.s3a."
_BUCKET: Final = "fs.s3a.bucket."
_AZURE: Final = "fs.azure."
_OF_COMMITTERS: Final = "fs.s3a.committer."
# Of a bucket without a period in its name: of any other it cannot be told where the name ends.
_SURELY_OF_COMMITTERS: Final = re.compile(r"fs\.s3a\.bucket\.[^.]+\.(committer\..+)")


class OfOnePlace(NamedTuple):
    """A key of one place.

    Attributes:
        general: The key for all places.
        place: The bucket, or the account's host.
    """

    general: str
    place: str


def of_one_place(key: str, known: Collection[str]) -> OfOnePlace | None:
    """Reads a key of one place.

    Args:
        key: A key, without Spark's prefix.
        known: General keys.

    Returns:
        None for any other key, and for one of one place whose general key is not known; but what is surely one of a
        committer is told also where it is not known.
    """
    if key.startswith(_BUCKET):
        for general in sorted((one for one in known if one.startswith(_S3A)), key=len, reverse=True):
            ending = f".{general.removeprefix(_S3A)}"
            if key.endswith(ending) and len(key) > len(_BUCKET) + len(ending):
                return OfOnePlace(general, key.removeprefix(_BUCKET).removesuffix(ending))
        found = _SURELY_OF_COMMITTERS.fullmatch(key)
        return OfOnePlace(f"{_S3A}{found[1]}", key.removeprefix(_BUCKET).partition(".")[0]) if found else None
    if key.startswith(_AZURE):
        for general in known:
            if general.startswith(_AZURE) and key.startswith(f"{general}."):
                return OfOnePlace(general, key.removeprefix(f"{general}."))
    return None


def for_place(options: Mapping[str, str], place: StorePath, known: Collection[str]) -> dict[str, str]:
    """The options as Hadoop has them at a place: its own keys count as the general ones, other places' are left out.

    A bucket's keys of committers stay as they are.

    Args:
        options: By key, without Spark's prefix.
        place: The destination.
        known: General keys.
    """
    general: dict[str, str] = {}
    own: dict[str, str] = {}
    here = place.authority.rpartition("@")[2].lower()
    for key, value in options.items():
        scoped = of_one_place(key, known)
        if scoped is None:
            general[key] = value
        elif scoped.place.lower() == here:
            own[key if scoped.general.startswith(_OF_COMMITTERS) else scoped.general] = value
    return {**general, **own}

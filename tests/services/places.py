"""Where the tests on real services run: what the environment names, and nothing else."""

from __future__ import annotations

import os
import shlex
from typing import Final, NamedTuple

from committer.paths import StorePath

VARIABLES: Final = {"gs": "COMMITTER_TEST_GCS", "abfss": "COMMITTER_TEST_ADLS", "s3": "COMMITTER_TEST_S3"}
NO_PLACE: Final = (
    f"real services are tested where {', '.join(VARIABLES.values())} name a directory of one (CONTRIBUTING.md)"
)


class Place(NamedTuple):
    """A directory of a service.

    Attributes:
        variable: What names it.
        path: Where tests make directories of their own.
        options: Storage options, which its sibling `..._OPTIONS` gives, as KEY=VALUE; of secrets where they are found.
    """

    variable: str
    path: StorePath
    options: dict[str, object]


def places() -> list[Place]:
    """What the environment names.

    Raises:
        InvalidPathError: A variable holds no URI.
        ValueError: A URI is of another store than the variable says, or an option is no KEY=VALUE.
    """
    found = []
    for scheme, variable in VARIABLES.items():
        uri = os.environ.get(variable, "")
        if not uri:
            continue
        path = StorePath.of(uri)
        if path.scheme.rstrip("s") != scheme.rstrip("s"):
            raise ValueError(f"{variable} is to begin with {scheme}://")
        texts = shlex.split(os.environ.get(f"{variable}_OPTIONS", ""))
        # References stay what they are: what is pickled on its way must find them again.
        options: dict[str, object] = dict(text.split("=", 1) for text in texts)
        found.append(Place(variable, path, options))
    return found

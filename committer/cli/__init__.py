"""The command line: ``committer``, or ``python -m committer.cli``. Needs the extra ``cli``.

Each command is a function of `application`; what it finds out or does is in a module of its own and returns an
`output.Answer`, which is printed as text or as JSON. Exit codes are in `exits`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: What follows the program's name; those of this process when None.

    Returns:
        The exit code; see `committer.cli.exits.Exit`.
    """
    try:
        from committer.cli.application import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        print(
            f"committer: the command line needs {' and '.join(_NEEDED)}, and {error.name} is not installed\n"
            "next step: pip install 'lake-committer[cli]'",
            file=sys.stderr,
        )
        return 2
    return run(sys.argv[1:] if arguments is None else arguments)

"""Command line ``committer``, or ``python -m committer.cli``; needs the extra ``cli``.

Each command is a function of `application`; its module returns an `output.Answer`, printed as text or JSON. Exit
codes are in `text.Exit`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

_NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (`committer.cli.text.Exit`).

    Args:
        arguments: The command line without the program's name; this process's when None.
    """
    # A process that was started without them has none.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # The error contains what it would print about a failed login.
    logging.getLogger("azure.identity").addHandler(logging.NullHandler())
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
    except KeyboardInterrupt:
        # Loading modules is half of a short command's time.
        print("committer: interrupted; nothing was changed", file=sys.stderr)
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)

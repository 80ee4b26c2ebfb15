"""The command line: ``committer``, or ``python -m committer.cli``. Needs the extra ``cli``.

Each command is a function of `application`; what it finds out or does is in a module of its own and returns an
`output.Answer`, which is printed as text or as JSON. Exit codes are in `exits`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

_NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: What follows the program's name; those of this process when None.

    Returns:
        The exit code; see `committer.cli.text.Exit`.
    """
    # A process that was started without them has none.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # What it would print of a login that failed stands in the error, too.
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
    except BaseException as error:
        # In half of the time that a short command takes its modules are loaded.
        if not _is_interrupt(error):
            raise
        print("committer: interrupted; nothing was changed", file=sys.stderr)
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is the cause; Python turns it into another error where a class is being made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None

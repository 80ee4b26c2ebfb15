"""Where the documentation is: what messages name, for a wheel holds no page of it."""

from __future__ import annotations

from typing import Final

PAGES: Final = "https://github.com/lake-committer/committer/blob/main/docs"


def page(name: str) -> str:
    """The address of a page.

    Args:
        name: Its name below ``docs``, with ``#`` and a heading where it is about one.
    """
    return f"{PAGES}/{name}"

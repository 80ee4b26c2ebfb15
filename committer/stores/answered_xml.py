"""The XML that services answer."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, XMLParser, fromstring

from committer.advice import UNREADABLE
from committer.errors import StoreUnavailableError
from committer.paths import StorePath


class Answered:
    """One element of an answer, its children by their names without namespace."""

    __slots__ = ("_element",)

    def __init__(self, element: Element) -> None:
        self._element = element

    def text(self, name: str) -> str:
        """The text of the child of that name, spaces and all; empty without one."""
        for child in self._element:
            if _local(child) == name:
                return child.text or ""
        return ""

    def texts(self) -> dict[str, str]:
        """The text of each child."""
        return {_local(child): child.text or "" for child in self._element}

    def each(self, name: str) -> Iterator[Answered]:
        """The children of that name."""
        return (Answered(child) for child in self._element if _local(child) == name)

    def child(self, name: str) -> Answered | None:
        """The first child of that name."""
        return next(self.each(name), None)


def parsed(body: bytes, root: str, operation: str, path: StorePath) -> Answered:
    """What an answer holds.

    Args:
        body: The answer.
        root: What its root element's name begins with: some services that speak like S3 end it otherwise.
        operation: What errors call it.
        path: What it is about.

    Raises:
        StoreUnavailableError: It is not the document it must be.
    """
    try:
        # No answer of a store declares anything; without declarations nothing can grow while it is parsed. In UTF-16
        # these bytes would not be seen.
        if b"<!" not in body and b"\0" not in body:
            element = fromstring(body, XMLParser(encoding="utf-8"))  # noqa: S314
            if _local(element).startswith(root):
                return Answered(element)
    except ParseError:
        pass
    raise StoreUnavailableError("an answer cannot be read", operation=operation, path=path, next_step=UNREADABLE)


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]

"""Services that lack one ability: a real server, behind a proxy that takes it away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from committer.stores.s3.wire import STAMP_HEADER
from tests.s3.proxy import Forgotten, Proxy, Trouble, proxy_to, refusal
from tests.s3.servers import Server

_UPLOAD = "uploadId"


def _not_implemented(method: str, *, query: str = "", header: str = "") -> Trouble:
    return Trouble(
        "answer",
        method=method,
        query=query,
        header=header,
        times=1 << 30,
        status=501,
        headers={"Content-Type": "application/xml"},
        body=refusal("NotImplemented"),
    )


@dataclass(frozen=True)
class Lax:
    """What a service does not do.

    Attributes:
        lacks: The trial that shows it; empty if none does.
        refuses: Whether a job is refused there when it is set up.
        forgets: Headers that have no effect.
        answers: Requests that it does not know.
    """

    lacks: str
    refuses: bool
    forgets: tuple[Forgotten, ...] = ()
    answers: tuple[Trouble, ...] = ()


SERVICES = {
    "puts whatever is there": Lax("conditional put", True, (Forgotten("PUT", "if-none-match"),)),
    "knows no conditional put": Lax(
        "conditional put", True, answers=(_not_implemented("PUT", header="if-none-match"),)
    ),
    "completes whatever is there": Lax("conditional completion", True, (Forgotten("POST", "if-none-match", _UPLOAD),)),
    "knows no conditional completion": Lax(
        "conditional completion", True, answers=(_not_implemented("POST", query=_UPLOAD, header="if-none-match"),)
    ),
    "loses stamps": Lax("stamp", True, (Forgotten("POST", STAMP_HEADER),)),
    "replaces whatever is there": Lax("conditional replace", True, (Forgotten("PUT", "if-match"),)),
    "knows no conditional replace": Lax(
        "conditional replace", True, answers=(_not_implemented("PUT", header="if-match"),)
    ),
    "deletes whatever is there": Lax("conditional delete", True, (Forgotten("DELETE", "if-match"),)),
    "knows no conditional delete": Lax(
        "conditional delete", True, answers=(_not_implemented("DELETE", header="if-match"),)
    ),
    "lists no uploads": Lax("list of uploads", True, answers=(_not_implemented("GET", query="uploads="),)),
    "lists all uploads": Lax("", False),
    "deletes one by one": Lax("batch delete", False, answers=(_not_implemented("POST", query="delete"),)),
}
"""By what they do, or do not."""


@asynccontextmanager
async def declared(name: str, server: Server) -> AsyncIterator[tuple[Server, Proxy]]:
    """What the storage option `service` declares, in front of a server that checks no signatures.

    ``minio`` ignores the condition of a delete; ``oss`` also answers 501 to every condition of S3's.
    """
    async with proxy_to(server.url) as proxy:
        if name == "minio":
            proxy.forgets = [Forgotten("DELETE", "if-match")]
        else:
            proxy.speaks_oss = True
            proxy.troubles = [
                _not_implemented(method, header=header)
                for method in ("PUT", "POST", "DELETE")
                for header in ("if-match", "if-none-match")
            ]
        yield Server(name, proxy.url, server.client), proxy


@asynccontextmanager
async def service(name: str, server: Server) -> AsyncIterator[tuple[Server, Proxy]]:
    """One of `SERVICES`, in front of a server that checks no signatures."""
    lax = SERVICES[name]
    async with proxy_to(server.url) as proxy:
        proxy.forgets = list(lax.forgets)
        proxy.troubles = [replace(one) for one in lax.answers]
        if not lax.lacks:
            proxy.drops = ("uploads=", "prefix")
        yield Server(name, proxy.url, server.client), proxy

"""Ports for servers that have to be told theirs.

Below those that the system gives to connections (from 32768 on Linux, from 49152 on macOS): such a port, found free and let go,
could be a connection's of another worker by the time that a server has started, or is started again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Final

_FIRST: Final = 18_000
_EACH: Final = 1_750
_WORKERS: Final = 8


def _candidates() -> Iterator[int]:
    """Ports of this worker of xdist, over and over, from another one on in each process."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw")) % _WORKERS
    first, at = _FIRST + worker * _EACH, os.getpid() * 37
    while True:
        yield first + at % _EACH
        at += 1


_ports: Final = _candidates()


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens.

    Raises:
        OSError: The machine has no such address, or no such port is free.
    """
    for tries_left in reversed(range(_EACH)):
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                if not tries_left:
                    raise
                continue
            return port
    raise AssertionError("the last try returns or raises")

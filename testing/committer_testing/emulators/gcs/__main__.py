"""`python -m committer_testing.emulators.gcs`: serves buckets until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from collections.abc import Sequence

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.server import serve
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.serving import tls_context, told_to_stop


def main(arguments: list[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT; prints the service's URL as its only line."""
    given = _parser().parse_args(arguments)
    try:
        settings = Settings(
            project=given.project,
            rate=given.rate,
            hierarchical=given.hierarchical,
            soft_delete_seconds=given.soft_delete_seconds,
            object_change_seconds=given.object_change_seconds,
            has_move=not given.without_move,
            bearer_tokens=frozenset(given.token),
        )
        context = tls_context(given.certificate, given.private_key)
        asyncio.run(_run(settings, given.port, context, given.bucket))
    except ServiceError as error:
        sys.exit(f"error: {error.code}: {error.message}")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


async def _run(settings: Settings, port: int, context: ssl.SSLContext | None, buckets: Sequence[str]) -> None:
    async with serve(settings, port=port, ssl_context=context) as emulator:
        for name in buckets:
            emulator.make_bucket(name)
        print(emulator.url, flush=True)  # noqa: T201 - the process that started it waits for this
        await told_to_stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m committer_testing.emulators.gcs",
        description="Emulates Google Cloud Storage on 127.0.0.1 and prints its URL.",
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, picks a free one")
    parser.add_argument("--project", default="emulated", help="the project of its buckets; default: %(default)s")
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second it serves; 0, the default: no limit")
    parser.add_argument("--hierarchical", action="store_true", help="buckets have a hierarchical namespace")
    parser.add_argument(
        "--soft-delete-seconds", type=int, default=0, help="how long deleted objects are kept; 0, the default: not"
    )
    parser.add_argument(
        "--object-change-seconds",
        type=float,
        default=0.0,
        help="the pause that each object name needs between changes; the service's is about 1; 0, the default: none",
    )
    parser.add_argument("--without-move", action="store_true", help="knows no moveTo, as most emulators")
    parser.add_argument("--bucket", action="append", default=[], help="one that is there at once; may be repeated")
    parser.add_argument(
        "--token", action="append", default=[], help="an OAuth token that requests must have; may be repeated"
    )
    parser.add_argument("--certificate", help="serves TLS with this PEM file")
    parser.add_argument("--private-key", help="the certificate's key, unless it is in the same file")
    return parser


if __name__ == "__main__":
    main()

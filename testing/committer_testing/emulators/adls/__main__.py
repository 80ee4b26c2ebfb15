"""`python -m committer_testing.emulators.adls`: serves an account until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from collections.abc import Sequence

from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.server import serve
from committer_testing.emulators.adls.settings import DEFAULT_ACCOUNT, DEFAULT_KEY, Settings
from committer_testing.emulators.serving import tls_context, told_to_stop


def main(arguments: list[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT; prints the account's URL as its only line."""
    given = _parser().parse_args(arguments)
    try:
        settings = Settings(
            account=given.account,
            key=given.key,
            rate=given.rate,
            burst_seconds=given.burst_seconds,
            hierarchical=not given.flat,
            soft_delete_days=given.soft_delete_days,
            bearer_tokens=frozenset(given.token),
        )
        context = tls_context(given.certificate, given.private_key)
        asyncio.run(_run(settings, given.port, context, given.filesystem))
    except ServiceError as error:
        sys.exit(f"error: {error.code}: {error.message}")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


async def _run(settings: Settings, port: int, context: ssl.SSLContext | None, filesystems: Sequence[str]) -> None:
    async with serve(settings, port=port, ssl_context=context) as emulator:
        for name in filesystems:
            emulator.namespace.create_filesystem(name, {})
        print(emulator.url, flush=True)  # noqa: T201 - the process that started it waits for this
        await told_to_stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m committer_testing.emulators.adls",
        description="Emulates an Azure Data Lake Storage Gen2 account on 127.0.0.1 and prints its URL.",
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, picks a free one")
    parser.add_argument("--account", default=DEFAULT_ACCOUNT, help="default: %(default)s")
    parser.add_argument("--key", default=DEFAULT_KEY, help="in base64; default: the published development key")
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second it serves; 0, the default: no limit")
    parser.add_argument("--burst-seconds", type=float, default=0.1, help="seconds' worth of them that may come at once")
    parser.add_argument("--flat", action="store_true", help="an account without hierarchical namespace")
    parser.add_argument(
        "--soft-delete-days", type=int, default=0, help="what it says its blob soft delete is; 0, the default: off"
    )
    parser.add_argument("--filesystem", action="append", default=[], help="one that is there at once; may be repeated")
    parser.add_argument("--token", action="append", default=[], help="an OAuth token it accepts; may be repeated")
    parser.add_argument("--certificate", help="serves TLS with this PEM file")
    parser.add_argument("--private-key", help="the certificate's key, unless it is in the same file")
    return parser


if __name__ == "__main__":
    main()

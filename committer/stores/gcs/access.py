"""Authorisation of requests to Google Cloud Storage: anonymous, by a given OAuth token, or by fetched ones."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Final

from committer.errors import StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.options.references import Secret
from committer.options.storage import refused
from committer.stores import http

SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
# Longest use of a token before asking again: gcloud-aio fetches the next one at half the life of the current one.
_KEPT_S: Final = 60.0
_WAYS: Final = (
    "log in (gcloud auth application-default login), give the machine a service account, or give service_file or token"
)


class Access(http.Access):
    """Abstract base of the ways to authenticate requests."""

    token: str = ""
    """Token that every request carries; set by `prepare`, empty for none."""


class Anonymous(Access):
    """Access without a token, as for emulators."""

    ready = True

    def __repr__(self) -> str:
        return "Anonymous()"

    async def prepare(self) -> None:
        """Does nothing."""


class GivenToken(Access):
    """Access that sends a given OAuth token, which is not renewed."""

    needs_tls = True

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return f"GivenToken({self._secret!r})"

    async def prepare(self) -> None:
        """Reads the token."""
        text = await current_runtime().run_blocking(self._secret.reveal)
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise refused(
                f"the option {self._secret.option} holds no OAuth token",
                "give a token, as gcloud auth print-access-token prints one, or leave it out",
            )
        self.token = text
        self.ready = True


class GotTokens(http.Renewed, Access):
    """Access that fetches tokens with gcloud-aio-auth: by a `service_file` or application default credentials."""

    needs_tls = True

    def __init__(self, service_file: str | None = None) -> None:
        super().__init__()
        self._service_file = service_file
        self._sources: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()
        self._asked: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"GotTokens({self._service_file or 'application default credentials'})"

    async def _renew(self) -> None:
        source = await self._source(asyncio.get_running_loop())
        self.token: str = await self._get(source)
        self._fresh_until = current_runtime().monotonic() + min(_KEPT_S, source.access_token_duration / 4)

    def refused(self) -> bool:
        """Discards the token."""
        self._fresh_until = 0.0
        for source in self._sources.values():
            source.access_token = None
        return True

    async def close(self) -> None:
        """Closes the running loop's session."""
        source = self._sources.pop(asyncio.get_running_loop(), None)
        if source is not None:
            self._fresh_until = 0.0
            await source.close()

    async def _source(self, loop: asyncio.AbstractEventLoop) -> Any:
        source = self._sources.get(loop)
        if source is None:
            # In a thread, because it reads files.
            source = self._sources[loop] = await current_runtime().run_blocking(self._made)
        return source

    def _made(self) -> Any:
        try:
            from gcloud.aio.auth import Token
        except ImportError:
            raise UnsupportedError(
                "gs: paths without the option token, or an endpoint that asks for none, need the package"
                " gcloud-aio-auth, which is not installed",
                operation="open_store",
                next_step="pip install 'lake-committer[gcs]'",
            ) from None
        said = ""
        try:
            return Token(service_file=self._service_file, scopes=[SCOPE])
        except Exception as error:
            said = type(error).__name__
        # Raised without its cause, which may quote the file.
        raise refused(
            f"the credentials file {self._service_file or 'of the environment'} cannot be used: {said}",
            "give service_file, the path of a credentials file in JSON",
        )

    async def _get(self, source: Any) -> str:
        # `shield`, because all callers of Token.get() await one task, which cancelling one of them would cancel.
        asking = asyncio.ensure_future(source.get())
        self._asked.add(asking)
        asking.add_done_callback(self._asked.discard)
        unreachable = False
        try:
            token = await asyncio.shield(asking)
            if token:
                return str(token)
            said = "an empty answer"
        except Exception as error:
            status = getattr(error, "status", None)
            unreachable = status is None or status >= 500
            # Only its kind and status: the error may hold the request with its secrets.
            said = http.redact(" ".join(str(part) for part in (type(error).__name__, status) if part))
        if unreachable:
            raise StoreUnavailableError(
                f"no server that gives tokens can be reached: {said}", operation="get_token", next_step=_WAYS
            )
        raise StorePermissionError(f"no token was given: {said}", operation="get_token", next_step=_WAYS)

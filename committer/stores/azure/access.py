"""Authorisation of requests to an Azure storage account: account key, shared access signature or OAuth token.

Every process reads a secret that is given as a reference when it first needs it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import time
from abc import abstractmethod
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from committer.errors import StoreError, StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.options.references import Held, Secret
from committer.options.storage import refused
from committer.stores import http

SCOPE: Final = "https://storage.azure.com/.default"
_EARLY_S: Final = 300.0
_AGAIN_S: Final = 15.0

Query = Sequence[tuple[str, str]]


class Access(http.Access):
    """Abstract base of the ways to authenticate requests."""

    signature: str = ""
    """Query string that ends every URL and rename source; set by `prepare`."""

    @abstractmethod
    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Adds the authorisation headers to a request.

        Args:
            path: As on the wire, with the account where the URL holds it.
            query: Decoded parameters, sorted by name; names in lower case.
            headers: All headers that are signed, except ``x-ms-date``.
            length: Length of the body.
        """


class SharedKey(Access):
    """Access that signs every request with the account key ("Authorize with Shared Key")."""

    def __init__(self, account: str, key: Secret | Held) -> None:
        self._account = account
        self._secret = key
        self._key = b""
        self._keyed = hmac.new(b"", digestmod=hashlib.sha256)
        self._second = 0
        self._date = ""

    def __repr__(self) -> str:
        return f"SharedKey({self._account!r}, {self._secret!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return SharedKey, (self._account, self._secret)

    async def prepare(self) -> None:
        """Reads the key."""
        text = await current_runtime().run_blocking(self._secret.reveal)
        try:
            self._key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            self._key = b""
        if not self._key:
            raise refused(
                f"the option {self._secret.option} holds no account key: that is base64",
                "copy the key from the account's page Access keys",
            )
        self._keyed = hmac.new(self._key, digestmod=hashlib.sha256)
        self.ready = True

    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Adds the date and the signature."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True)
        headers["x-ms-date"] = self._date
        get = headers.get
        # Content-Encoding, -Language, -Length (empty when 0), -MD5, -Type, Date, If-Modified-Since, If-Match,
        # If-None-Match, If-Unmodified-Since, Range.
        first = (
            f"{method}\n\n\n{length or ''}\n\n{get('Content-Type', '')}\n\n\n{get('If-Match', '')}\n"
            f"{get('If-None-Match', '')}\n\n{get('Range', '')}"
        )
        lines = [first, *[f"{name}:{headers[name]}" for name in _signed(tuple(headers))], f"/{self._account}{path}"]
        if query:
            lines += [f"{name}:{value}" for name, value in query]
        # Copying the keyed HMAC costs half as much as making a new one.
        signature = self._keyed.copy()
        signature.update("\n".join(lines).encode())
        digest = signature.digest()
        headers["Authorization"] = f"SharedKey {self._account}:{binascii.b2a_base64(digest, newline=False).decode()}"


@lru_cache(maxsize=256)
def _signed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the signed (x-ms-) headers, sorted."""
    return tuple(sorted(name for name in names if name.startswith("x-ms-")))


class SharedAccessSignature(Access):
    """Access that ends every URL and rename source with a shared access signature."""

    def __init__(self, token: Secret | Held) -> None:
        self._secret = token

    def __repr__(self) -> str:
        return f"SharedAccessSignature({self._secret!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return SharedAccessSignature, (self._secret,)

    async def prepare(self) -> None:
        """Reads the signature."""
        text = (await current_runtime().run_blocking(self._secret.reveal)).lstrip("?")
        if "sig=" not in text or not text.isascii() or not text.isprintable() or set(text) & set(' "#<>'):
            raise refused(
                f"the option {self._secret.option} holds no shared access signature: that is a query string with sig=",
                "give what follows the question mark of a URL with a signature",
            )
        self.signature = text
        self.ready = True

    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Does nothing: the URL holds the signature."""


class Token(http.Renewed, Access):
    """Access that sends an OAuth token, cached until shortly before it expires, and never without TLS.

    Args:
        credential: Holds an object with ``get_token``, async or blocking; None for ``DefaultAzureCredential``.
    """

    needs_tls = True

    def __init__(self, credential: Held | None = None) -> None:
        super().__init__()
        self._given = credential
        self._credential: Any = None
        self._token = ""
        self._valid_until = 0.0

    def __repr__(self) -> str:
        return f"Token({self._given or 'DefaultAzureCredential'})"

    def __reduce__(self) -> tuple[object, ...]:
        return Token, (self._given,)

    async def _renew(self) -> None:
        monotonic = current_runtime().monotonic
        try:
            token, expires = await self._fetch()
        except (StorePermissionError, StoreUnavailableError):
            if monotonic() < self._valid_until:
                # The next try waits: otherwise every request until then would wait for the failure.
                self._fresh_until = min(self._valid_until, monotonic() + _AGAIN_S)
                return
            raise
        left = expires - current_runtime().now().timestamp()
        self._token = token
        self._valid_until = monotonic() + left
        # A token that lives for less than twice the margin is kept for half its life.
        self._fresh_until = self._valid_until - min(_EARLY_S, max(0.0, left) / 2)

    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Adds the token."""
        headers["Authorization"] = f"Bearer {self._token}"

    def refused(self) -> bool:
        """Discards the token."""
        self._fresh_until = self._valid_until = 0.0
        return True

    async def _fetch(self) -> tuple[str, float]:
        if self._credential is None:
            if self._given is not None:
                self._credential = self._given.reveal()
            else:
                self._credential = await current_runtime().run_blocking(_default_credential)
        get = self._credential.get_token
        try:
            if inspect.iscoroutinefunction(get):
                found = await get(SCOPE)
            else:
                found = await current_runtime().run_blocking(lambda: get(SCOPE))
                if inspect.isawaitable(found):
                    found = await found
            return str(found.token), float(found.expires_on)
        except Exception as error:
            name = type(self._credential).__name__
            unreachable = type(error).__name__ in {"ServiceRequestError", "ServiceResponseError", "TimeoutError"}
            # A chain of credentials gives pages of reasons: only the first line goes into the message.
            said, _, details = http.redact(f"{type(error).__name__}: {error}").partition("\n")
        # Raised outside of the except block, without a cause: a vendor's exception may hold secrets.
        refused: StoreError
        if unreachable:
            refused = StoreUnavailableError(f"{name} cannot reach who gives tokens: {said}", operation="get_token")
        else:
            refused = StorePermissionError(
                f"{name} gave no token: {said}",
                operation="get_token",
                next_step="log in (az login), give the process an identity, or give account_key, sas_token or "
                "credential",
            )
        if details:
            refused.add_note(details)
        raise refused


class ServicePrincipal(Token):
    """Token access of a service principal; its secret may be a reference."""

    def __init__(self, tenant_id: str, client_id: str, secret: Secret) -> None:
        super().__init__()
        self._principal = (tenant_id, client_id, secret)

    def __repr__(self) -> str:
        return f"ServicePrincipal{self._principal!r}"

    def __reduce__(self) -> tuple[object, ...]:
        return ServicePrincipal, self._principal

    async def _fetch(self) -> tuple[str, float]:
        if self._credential is None:
            self._credential = await current_runtime().run_blocking(self._made)
        return await super()._fetch()

    def _made(self) -> Any:
        tenant_id, client_id, secret = self._principal
        kind = _identity("ClientSecretCredential", "the options tenant_id, client_id and client_secret are given")
        return kind(tenant_id, client_id, secret.reveal())


def _default_credential() -> Any:
    kind = _identity(
        "DefaultAzureCredential", "neither account_key, sas_token, connection_string nor credential is given"
    )
    # The blocking one, in threads: an async one belongs to the event loop that it was first used on.
    return kind()


def _identity(name: str, why: str) -> Any:
    try:
        import azure.identity
    except ImportError:
        raise UnsupportedError(
            f"{why}: that takes a token, and azure-identity, which gets one, is not installed",
            operation="open_store",
            next_step="pip install 'lake-committer[adls]'",
        ) from None
    return getattr(azure.identity, name)

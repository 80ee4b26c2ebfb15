"""How requests to an Azure storage account are authorised: account key, shared access signature, OAuth token.

Secrets are held by objects that neither show nor pickle them. A secret given as a reference (``env:NAME``,
``file:PATH``) is read when it is first needed, in every process anew, and the reference is what a pickle holds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from typing import Any, Final

from committer.errors import ConfigurationError, StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.stores.http import redact

SCOPE: Final = "https://storage.azure.com/.default"
_EARLY_S: Final = 300.0
_SECRET_FILE_LIMIT: Final = 1 << 16

Query = Sequence[tuple[str, str]]


class Secret:
    """A secret, or where to find one.

    Args:
        value: The secret as text, ``env:NAME`` or ``file:PATH``; None for one that was given as text in another
            process and did not travel.
        option: The storage option it came from.
        part: The part of a connection string it is, where `value` refers to one.
    """

    def __init__(self, value: str | None, option: str, part: str = "") -> None:
        self._value = value
        self._part = part
        self.option: str = option

    @property
    def is_reference(self) -> bool:
        """Whether it says where to find the secret."""
        return self._value is not None and self._value.startswith(("env:", "file:"))

    def __repr__(self) -> str:
        return f"Secret({self._value!r})" if self.is_reference else f"Secret({self.option})"

    def __reduce__(self) -> tuple[object, ...]:
        return Secret, (self._value if self.is_reference else None, self.option, self._part)

    def reveal(self) -> str:
        """The secret; blocks when it is in a file.

        Raises:
            ConfigurationError: It cannot be found, or did not travel.
        """
        value = self._value
        if value is None:
            raise ConfigurationError(
                f"the option {self.option} was given as text, which never leaves its process",
                operation="open_store",
                next_step=f"give {self.option} as env:NAME, or give storage_options in each process",
            )
        text = _resolved(value, self.option)
        return parse_connection_string(text).get(self._part, "") if self._part else text


def _resolved(value: str, option: str) -> str:
    found: str | None = value
    if value.startswith("env:"):
        found = os.environ.get(value[4:], "").strip()
    elif value.startswith("file:"):
        try:
            with open(value[5:], encoding="utf-8") as file:
                found = file.read(_SECRET_FILE_LIMIT).strip()
        except (OSError, UnicodeDecodeError):
            found = None
    if not found:
        raise ConfigurationError(
            f"the option {option} refers to {value}, which this process cannot read, or which is empty",
            operation="open_store",
        )
    return found


class Access(ABC):
    """One way to be let in."""

    needs_tls: bool = False
    """Whether it sends a secret itself, not something derived from one."""

    signature: str = ""
    """What every URL, and the source of a rename, carries at the end of its query; known once `ready`."""

    ready: bool = False
    """Whether `prepare` has nothing to wait for."""

    @abstractmethod
    async def prepare(self) -> None:
        """Gets what `authorise` needs; called before a request unless `ready`.

        Raises:
            ConfigurationError: The secret cannot be found, or is none.
            StorePermissionError: No token was given.
            StoreUnavailableError: Who gives tokens cannot be reached.
        """

    @abstractmethod
    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Adds to a request's headers what lets it in.

        Args:
            method: The HTTP method.
            path: As on the wire, with the account where the URL holds it.
            query: Decoded parameters in the order of their names, all in lower case.
            headers: All that are signed are there, but for ``x-ms-date``.
            length: Of the body.
        """

    def refused(self) -> None:  # noqa: B027 - most have nothing to forget
        """Told that the service took a request for unauthenticated: what was cached is not used again."""


class SharedKey(Access):
    """Signs every request with the account's key ("Authorize with Shared Key")."""

    def __init__(self, account: str, key: Secret) -> None:
        self._account = account
        self._secret = key
        self._key = b""
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
            raise ConfigurationError(
                f"the option {self._secret.option} holds no account key: that is base64", operation="open_store"
            )
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
        lines = [first]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
        lines.append(f"/{self._account}{path}")
        lines += [f"{name}:{value}" for name, value in query]
        digest = hmac.digest(self._key, "\n".join(lines).encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {self._account}:{binascii.b2a_base64(digest, newline=False).decode()}"


class SharedAccessSignature(Access):
    """Puts a shared access signature at the end of every URL, and of the source of a rename."""

    needs_tls = False

    def __init__(self, token: Secret) -> None:
        self._secret = token

    def __repr__(self) -> str:
        return f"SharedAccessSignature({self._secret!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return SharedAccessSignature, (self._secret,)

    async def prepare(self) -> None:
        """Reads the signature."""
        text = (await current_runtime().run_blocking(self._secret.reveal)).lstrip("?")
        if "sig=" not in text or not text.isascii() or not text.isprintable() or set(text) & set(' "#<>'):
            raise ConfigurationError(
                f"the option {self._secret.option} holds no shared access signature: that is a query string with sig=",
                operation="open_store",
            )
        self.signature = text
        self.ready = True

    def authorise(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Nothing: the URL has it."""


class Token(Access):
    """Sends an OAuth token, got from a credential, kept for the most of its life, and never sent without TLS.

    Args:
        credential: Anything with ``get_token``, blocking (then called in a thread) or not; None for
            ``DefaultAzureCredential``, made when it is first needed.
        given: Whether one was given: such a one does not travel in a pickle.
    """

    needs_tls = True

    def __init__(self, credential: Any = None, *, given: bool | None = None) -> None:
        self._credential = credential
        self._given = credential is not None if given is None else given
        self._token = ""
        self._fresh_until = 0.0
        self._valid_until = 0.0
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Token({type(self._credential).__name__ if self._given else 'DefaultAzureCredential'})"

    def __reduce__(self) -> tuple[object, ...]:
        return _token, (self._given,)

    async def prepare(self) -> None:
        """Gets a token when there is none, or five minutes before the old one ends; many callers get one together."""
        loop = asyncio.get_running_loop()
        lock = self._locks.get(loop)
        if lock is None:
            lock = self._locks[loop] = asyncio.Lock()
        monotonic = current_runtime().monotonic
        async with lock:
            if monotonic() < self._fresh_until:
                return
            try:
                token, expires = await self._fetch()
            except (StorePermissionError, StoreUnavailableError):
                if monotonic() < self._valid_until:
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

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """Whether the token is good for some time."""
        return current_runtime().monotonic() < self._fresh_until

    def refused(self) -> None:
        """Forgets the token."""
        self._fresh_until = self._valid_until = 0.0

    async def _fetch(self) -> tuple[str, float]:
        if self._credential is None:
            if self._given:
                raise ConfigurationError(
                    "the option credential was given as an object, which never leaves its process",
                    operation="open_store",
                    next_step="give storage_options in each process, or leave credential out where the process has one"
                    " of its own (DefaultAzureCredential)",
                )
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
            said = redact(f"{type(error).__name__}: {error}")
        # Raised here and without its cause: what vendors put into theirs is not known to be free of secrets.
        if unreachable:
            raise StoreUnavailableError(f"{name} cannot reach who gives tokens: {said}", operation="get_token")
        raise StorePermissionError(
            f"{name} gave no token: {said}",
            operation="get_token",
            next_step="log in (az login), give the process an identity, or give account_key, sas_token or credential",
        )


def _token(given: bool) -> Token:
    return Token(given=given)


def _default_credential() -> Any:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise UnsupportedError(
            "without account_key, sas_token, connection_string or credential a token is needed, and azure-identity is"
            " not installed",
            operation="open_store",
            next_step="pip install 'lake-committer[adls]'",
        ) from None
    # The blocking one, in threads: the other kind belongs to the event loop it was first used on.
    return DefaultAzureCredential()


def access_of(account: str, options: Mapping[str, object]) -> Access:
    """How the storage options say to be let in.

    Args:
        account: The account's name.
        options: At most one of ``account_key``, ``sas_token`` and ``credential`` that is not None; with none of them
            `DefaultAzureCredential` finds its way.

    Raises:
        ConfigurationError: There are several, or one is no text and no credential.
    """
    given = [name for name in ("account_key", "sas_token", "credential") if options.get(name) is not None]
    if len(given) > 1:
        raise ConfigurationError(f"the options {' and '.join(given)} exclude one another", operation="open_store")
    if not given:
        return Token()
    name, value = given[0], options[given[0]]
    if name != "credential":
        if not isinstance(value, Secret):
            value = Secret(_text(name, value), name)
        return SharedKey(account, value) if name == "account_key" else SharedAccessSignature(value)
    if isinstance(value, Access):
        return value
    if callable(getattr(value, "get_token", None)):
        return Token(value)
    # AzureSasCredential and AzureNamedKeyCredential of azure-core.
    signature, named_key = getattr(value, "signature", None), getattr(value, "named_key", None)
    if isinstance(signature, str):
        return SharedAccessSignature(Secret(signature, name))
    if named_key is not None:
        return SharedKey(str(named_key.name), Secret(str(named_key.key), name))
    raise ConfigurationError(
        f"the option credential is a {type(value).__name__}, which has no get_token",
        operation="open_store",
        next_step="give a credential of azure-identity, or account_key or sas_token",
    )


def parse_connection_string(text: object) -> dict[str, str]:
    """The parts of a connection string, by their names in lower case.

    Args:
        text: The string, or ``env:NAME``.

    Raises:
        ConfigurationError: It is none; what it says is not repeated.
    """
    value = _text("connection_string", text)
    if value.startswith("file:"):
        raise ConfigurationError(
            "the option connection_string cannot be read from a file: it holds the endpoint, needed at once",
            operation="open_store",
            next_step="give it as env:NAME, or endpoint and account_key=file:PATH",
        )
    parts: dict[str, str] = {}
    for part in _resolved(value, "connection_string").split(";"):
        if part.strip():
            name, equals, content = part.partition("=")
            if not equals:
                raise ConfigurationError(
                    "the option connection_string is none: it has a part without an equals sign", operation="open_store"
                )
            parts[name.strip().lower()] = content.strip()
    return parts


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"the option {name} is no text, or empty", operation="open_store")
    return value

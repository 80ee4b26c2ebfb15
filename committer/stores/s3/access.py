"""How requests to S3 are signed: AWS Signature Version 4, with keys that were given or that botocore's chain finds.

The signature is made here and not by botocore's signer, which costs ten times as much and writes every canonical
request, session token included, to its debug log. (The rules: "Signature Version 4 signing process" in the IAM user
guide, "Authenticating Requests" in the S3 API reference.)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import time
import weakref
from typing import Any, Final

from committer.errors import ConfigurationError, StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.options.references import Held, Secret
from committer.stores.http import redact

NOTHING_SHA256: Final = hashlib.sha256(b"").hexdigest()

# Keys that end are asked for anew this often; botocore fetches others fifteen minutes before their end.
_KEPT_S: Final = 60.0
_UNREACHABLE: Final = frozenset({"ConnectTimeoutError", "EndpointConnectionError", "ReadTimeoutError"})


class S3Access:
    """Keys, the region, and what signs with them.

    Args:
        access_key_id: The id of a key; None for botocore's chain (environment, shared files, web identity, containers,
            instance metadata).
        secret_access_key: The key itself.
        session_token: Of temporary keys.
        profile: A profile of the shared files, for the chain.
        session: Holds a boto3 or botocore session, whose keys and region these are.
        region: None for what the profile says, and ``us-east-1`` where it says nothing.
    """

    def __init__(
        self,
        *,
        access_key_id: Secret | None = None,
        secret_access_key: Secret | None = None,
        session_token: Secret | None = None,
        profile: str | None = None,
        session: Held | None = None,
        region: str | None = None,
    ) -> None:
        self._given = (access_key_id, secret_access_key, session_token)
        self._profile = profile
        self._session = session
        self._given_region = region
        self.region: str = region or ""
        # Grows whenever keys or region become other ones: tells what a request was signed with.
        self.generation: int = 0
        self._chain: Any = None
        self._region_found = ""
        self._keys: tuple[str, str, str] = ("", "", "")
        self._fresh_until = -1.0
        self._fetched_at = 0.0
        self._second = 0
        self._moment = ""
        # What a signature begins with, and its key: they hold for a day and a region.
        self._scope = ""
        self._signing = hmac.new(b"", digestmod=hashlib.sha256)
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        if self._given[0] is not None:
            return f"S3Access({', '.join(repr(one) for one in self._given if one is not None)})"
        if self._session is not None:
            return f"S3Access({self._session!r})"
        return f"S3Access(profile={self._profile!r})" if self._profile else "S3Access(botocore)"

    def __reduce__(self) -> tuple[object, ...]:
        # Not a region that was learnt, nor keys that were found: each process looks for itself.
        return _make, (*self._given, self._profile, self._session, self._given_region)

    @property
    def ready(self) -> bool:
        """Whether `prepare` has nothing to wait for."""
        return current_runtime().monotonic() < self._fresh_until

    async def prepare(self) -> None:
        """Gets keys and region; called before a request unless `ready`. Many callers get them together.

        Raises:
            ConfigurationError: A secret cannot be found.
            StorePermissionError: There are no keys.
            StoreUnavailableError: The service that gives keys cannot be reached.
            UnsupportedError: botocore is needed and not installed.
        """
        loop = asyncio.get_running_loop()
        lock = self._locks.get(loop)
        if lock is None:
            lock = self._locks[loop] = asyncio.Lock()
        async with lock:
            if self.ready:
                return
            keys, region, end = await current_runtime().run_blocking(self._fetch)
            self.region = self.region or region
            if keys != self._keys:
                self._keys = keys
                self._scope = ""
                self.generation += 1
            self._fetched_at = current_runtime().monotonic()
            self._fresh_until = self._fetched_at + (_KEPT_S if end else float("inf"))

    def refused(self) -> bool:
        """Told that the service took the keys for ended or wrong.

        Returns:
            Whether another try, after `prepare`, may fare better: only keys that end can be other ones by then.
        """
        now = current_runtime().monotonic()
        if self._fresh_until == float("inf") or now < self._fetched_at + 1.0:
            return False
        self._chain = None
        self._fresh_until = -1.0
        return True

    def moved(self, region: str) -> None:
        """Told that the bucket is in another region."""
        self.region = region
        self._scope = ""
        self.generation += 1

    def sign(
        self, method: str, host: str, path: str, query: str, headers: dict[str, str], payload_sha256: str
    ) -> dict[str, str]:
        """Adds what lets a request in; all headers given are signed.

        Args:
            method: The HTTP method.
            host: The ``Host`` header.
            path: As on the wire: each byte but letters, digits and ``-_.~/`` escaped, once.
            query: As on the wire, escaped likewise, in the order of names, each with an equals sign.
            headers: By names in lower case.
            payload_sha256: Of the body, in hexadecimal.

        Returns:
            The same headers.
        """
        key_id, _secret, token = self._keys
        second = int(time.time())
        if second != self._second or not self._scope:
            self._begin(second)
        headers["host"] = host
        headers["x-amz-content-sha256"] = payload_sha256
        headers["x-amz-date"] = self._moment
        if token:
            headers["x-amz-security-token"] = token
        names = sorted(headers)
        lines = "".join([f"{name}:{headers[name]}\n" for name in names])
        signed = ";".join(names)
        request = f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{payload_sha256}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self._moment}\n{self._scope}\n{digest}"
        # Half of what it costs to begin with the key.
        signing = self._signing.copy()
        signing.update(text.encode())
        signature = signing.hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={key_id}/{self._scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return headers

    def _begin(self, second: int) -> None:
        self._second = second
        self._moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        scope = f"{self._moment[:8]}/{self.region}/s3/aws4_request"
        if scope != self._scope:
            key = f"AWS4{self._keys[1]}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._scope, self._signing = scope, hmac.new(key, digestmod=hashlib.sha256)

    def _fetch(self) -> tuple[tuple[str, str, str], str, bool]:
        """Keys, region, and whether the keys end; blocks."""
        key_id, secret, token = self._given
        if key_id is not None and secret is not None:
            keys = (key_id.reveal(), secret.reveal(), token.reveal() if token is not None else "")
            return _checked(keys), self.region or _region_of(self._profile), False
        # The loop may forget the chain while this thread asks it.
        chain = self._chain
        if chain is None:
            session = self._session.reveal() if self._session is not None else _session(self._profile)
            self._chain = chain = _asked("finds no keys", session.get_credentials)
            self._region_found = _region_in(session)
        if chain is None:
            raise StorePermissionError(
                "botocore finds no keys for S3",
                operation="open_store",
                next_step="log in (aws sso login, aws configure), give the process a role, or give access_key_id and"
                " secret_access_key",
            )
        frozen = _asked("gets no keys", chain.get_frozen_credentials)
        keys = (str(frozen.access_key), str(frozen.secret_key), str(frozen.token or ""))
        return _checked(keys), self._region_found, hasattr(chain, "refresh_needed")


def _make(
    access_key_id: Secret | None,
    secret_access_key: Secret | None,
    session_token: Secret | None,
    profile: str | None,
    session: Held | None,
    region: str | None,
) -> S3Access:
    return S3Access(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        profile=profile,
        session=session,
        region=region,
    )


def _checked(keys: tuple[str, str, str]) -> tuple[str, str, str]:
    # They go into a header and must not end it.
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise ConfigurationError(
            "what was given as keys for S3 are none: they are ASCII text",
            operation="open_store",
            next_step="give access_key_id and secret_access_key as the service showed them",
        )
    return keys


def _region_of(profile: str | None) -> str:
    try:
        return _region_in(_session(profile))
    except UnsupportedError:
        # With keys that were given, botocore is not needed.
        return "us-east-1"


def _region_in(session: Any) -> str:
    """The region of a botocore session, or of boto3's around one."""
    ask = getattr(session, "get_config_variable", None)
    return str((ask("region") if ask is not None else session.region_name) or "us-east-1")


def checked_session(session: Any) -> Any:
    """A boto3 or botocore session.

    Raises:
        ConfigurationError: It is none.
    """
    get = getattr(session, "get_credentials", None)
    if not callable(get) or inspect.iscoroutinefunction(get):
        raise ConfigurationError(
            f"the option session is a {type(session).__module__}.{type(session).__name__}",
            operation="open_store",
            next_step="give a session of boto3 or botocore; an aiohttp session goes as http_session",
        )
    return session


def _session(profile: str | None) -> Any:
    try:
        import botocore.session
    except ImportError:
        raise UnsupportedError(
            "without access_key_id and secret_access_key the keys are looked for, and botocore, which does that, is not"
            " installed",
            operation="open_store",
            next_step="pip install 'lake-committer[s3]'",
        ) from None
    return _asked("reads no profile", lambda: botocore.session.Session(profile=profile))


def _asked(failure: str, ask: Any) -> Any:
    """What botocore answers; its errors become this library's."""
    try:
        return ask()
    except Exception as error:
        unreachable = type(error).__name__ in _UNREACHABLE
        said = redact(f"{type(error).__name__}: {error}")
    # Raised here and without its cause: what vendors put into theirs is not known to be free of secrets.
    if unreachable:
        raise StoreUnavailableError(f"botocore cannot reach who gives keys: {said}", operation="open_store")
    raise StorePermissionError(
        f"botocore {failure}: {said}",
        operation="open_store",
        next_step="check the profile, log in anew, or give access_key_id and secret_access_key",
    )


def sha256_of(data: bytes | bytearray | memoryview) -> str:
    """The digest of a body, in hexadecimal; of a long one to be made in a thread."""
    return hashlib.sha256(data).hexdigest()

"""Signatures of requests to S3: AWS Signature Version 4, with given keys or those of botocore's chain.

botocore's signer takes ten times as long and writes every canonical request, session token included, to its
debug log. Rules: "Signature Version 4 signing process" (IAM user guide), "Authenticating Requests" (S3 API
reference).
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import time
from typing import Any, Final

import msgspec

from committer.errors import StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.options.references import Held, Secret
from committer.options.storage import refused
from committer.stores.http import Renewed, redact

NOTHING_SHA256: Final = hashlib.sha256(b"").hexdigest()

# Temporary keys are asked for again this often; botocore renews them fifteen minutes before they expire.
_KEPT_S: Final = 60.0
_UNREACHABLE: Final = frozenset({"ConnectTimeoutError", "EndpointConnectionError", "ReadTimeoutError"})


class GivenKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that a program gave, or where botocore's chain is to find some; their repr shows no secrets.

    Attributes:
        access_key_id: None for botocore's chain (environment, shared files, web identity, containers, instance
            metadata).
        profile: A profile of the shared files, for the chain.
        session: Holds a boto3 or botocore session that gives keys and region.
    """

    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    profile: str | None = None
    session: Held | None = None


class S3Access(Renewed):
    """Keys and region, and the signatures made with them.

    Args:
        region: None for the profile's, or ``us-east-1`` if it has none.
    """

    def __init__(self, given: GivenKeys, region: str | None) -> None:
        super().__init__()
        self._given = given
        self.region: str = region or ""
        # Counts changes of keys or region, and so tells what a request was signed with.
        self.generation: int = 0
        self._chain: Any = None
        self._region_found = ""
        self._keys: tuple[str, str, str] = ("", "", "")
        self._fetched_at = 0.0
        self._second = 0
        self._moment = ""
        # Scope and key of signatures, valid for one day and region.
        self._scope = ""
        self._signing = hmac.new(b"", digestmod=hashlib.sha256)

    def __repr__(self) -> str:
        given = self._given
        if given.access_key_id is not None:
            keys = (given.access_key_id, given.secret_access_key, given.session_token)
            return f"S3Access({', '.join(repr(one) for one in keys if one is not None)})"
        if given.session is not None:
            return f"S3Access({given.session!r})"
        return f"S3Access(profile={given.profile!r})" if given.profile else "S3Access(botocore)"

    async def _renew(self) -> None:
        """Fetches keys and region."""
        keys, region, end = await current_runtime().run_blocking(self._fetch)
        self.region = self.region or region
        if keys != self._keys:
            self._keys = keys
            self._scope = ""
            self.generation += 1
        self._fetched_at = current_runtime().monotonic()
        self._fresh_until = self._fetched_at + (_KEPT_S if end else float("inf"))

    def refused(self) -> bool:
        """Discards temporary keys that the service refused; returns True if a retry after `prepare` may succeed."""
        now = current_runtime().monotonic()
        if self._fresh_until == float("inf") or now < self._fetched_at + 1.0:
            return False
        self._chain = None
        self._fresh_until = 0.0
        return True

    def moved(self, region: str) -> None:
        """Sets the region that the service named for the bucket."""
        self.region = region
        self._scope = ""
        self.generation += 1

    def sign(
        self, method: str, host: str, path: str, query: str, headers: dict[str, str], payload_sha256: str
    ) -> dict[str, str]:
        """Adds the signature to `headers` and returns them; all given headers are signed.

        Args:
            path: As on the wire: each byte except letters, digits and ``-_.~/`` escaped, once.
            query: As on the wire, escaped likewise, sorted by name, each with an equals sign.
            headers: Names in lower case.
            payload_sha256: Digest of the body, in hexadecimal.
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
        # Copying the keyed HMAC costs half as much as making a new one.
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
        """Returns the keys, the region, and whether the keys expire; blocks."""
        given = self._given
        if given.access_key_id is not None and given.secret_access_key is not None:
            token = given.session_token.reveal() if given.session_token is not None else ""
            keys = (given.access_key_id.reveal(), given.secret_access_key.reveal(), token)
            return _checked(keys), self.region or _region_of(given.profile), False
        # A local name: the loop may clear the chain while this thread uses it.
        chain = self._chain
        if chain is None:
            session = given.session.reveal() if given.session is not None else _session(given.profile)
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


def _checked(keys: tuple[str, str, str]) -> tuple[str, str, str]:
    # Keys go into a header, which they must not end.
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise refused(
            "what was given as keys for S3 are none: they are ASCII text",
            "give access_key_id and secret_access_key as the service showed them",
        )
    return keys


def _region_of(profile: str | None) -> str:
    try:
        return _region_in(_session(profile))
    except UnsupportedError:
        # Given keys do not need botocore.
        return "us-east-1"


def _region_in(session: Any) -> str:
    ask = getattr(session, "get_config_variable", None)
    return str((ask("region") if ask is not None else session.region_name) or "us-east-1")


def checked_session(session: Any) -> Any:
    """Checks the option session: a boto3 or botocore session."""
    get = getattr(session, "get_credentials", None)
    if not callable(get) or inspect.iscoroutinefunction(get):
        raise refused(
            f"the option session is a {type(session).__module__}.{type(session).__name__}",
            "give a session of boto3 or botocore; an aiohttp session goes as http_session",
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
    """Calls botocore and converts its errors."""
    try:
        return ask()
    except Exception as error:
        unreachable = type(error).__name__ in _UNREACHABLE
        said = redact(f"{type(error).__name__}: {error}")
    # Raised outside of the except block, without a cause: a vendor's exception may hold secrets.
    if unreachable:
        raise StoreUnavailableError(f"botocore cannot reach who gives keys: {said}", operation="open_store")
    raise StorePermissionError(
        f"botocore {failure}: {said}",
        operation="open_store",
        next_step="check the profile, log in anew, or give access_key_id and secret_access_key",
    )


def sha256_of(data: bytes | bytearray | memoryview) -> str:
    """Returns the hexadecimal digest of a body; for a long one to be called in a thread."""
    return hashlib.sha256(data).hexdigest()

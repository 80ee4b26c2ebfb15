"""Authorisation by SharedKey signatures and bearer tokens; `sas` verifies shared access signatures."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from committer_testing.emulators.adls import sas
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.sas import Grant
from committer_testing.emulators.adls.settings import Settings
from committer_testing.emulators.adls.wire import Request

# The headers of the string to sign, in order ("Authorize with Shared Key"). Content-Length is empty when it is 0, and
# Date when there is an x-ms-date.
_SIGNED = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OLDEST_VERSION = {"dfs": "2018-06-17", "blob": "2009-09-19"}


class Authority:
    """Verifies each request against one account's key and tokens."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        try:
            self._key = base64.b64decode(settings.key, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the account key is not base64") from None
        self._tokens = {token.encode() for token in settings.bearer_tokens}

    def authorise(self, request: Request) -> Grant | None:
        """Verifies a request; what a SAS allows, or None where everything is allowed (the key, a token).

        Raises:
            ServiceError: As the service: 401 without or with a wrong token, 403 with a wrong signature, 400 when the
                header makes no sense.
        """
        version = request.headers.get("x-ms-version")
        if version is not None and not _VERSION.fullmatch(version):
            raise ServiceError("InvalidHeaderValue")
        if version is not None and version < _OLDEST_VERSION[request.endpoint]:
            raise ServiceError("UnsupportedRestVersion")
        header = request.headers.get("Authorization")
        if header is None:
            if "sig" in request.query:
                return sas.verify(request, request.query, self._settings.account, self._key)
            raise ServiceError("NoAuthenticationInformation", headers={"WWW-Authenticate": self._challenge()})
        scheme, _, value = header.partition(" ")
        if scheme == "SharedKey":
            self._check_shared_key(request, value)
        elif scheme == "Bearer":
            self._check_token(value)
        else:
            raise ServiceError("InvalidAuthenticationInfo")
        return None

    def authorise_source(self, request: Request, query: Mapping[str, str], source: tuple[str, str]) -> Grant | None:
        """Verifies the SAS in the source of a rename.

        Raises:
            ServiceError: It isn't valid; or it is missing, and the request has one (rename_source_needs_sas).
        """
        if "sig" in query:
            return sas.verify(request, query, self._settings.account, self._key, at=source)
        if "Authorization" not in request.headers and self._settings.rename_source_needs_sas:
            raise ServiceError("AuthenticationFailed")
        if "Authorization" not in request.headers:
            return sas.verify(request, request.query, self._settings.account, self._key, at=source)
        return None

    def _challenge(self, error: str = "") -> str:
        # What a client that finds its tenant by challenge reads ("Bearer challenge").
        tenant = "00000000-0000-0000-0000-000000000000"
        return (
            f"Bearer {error}authorization_uri=https://login.microsoftonline.com/{tenant}/oauth2/authorize "
            "resource_id=https://storage.azure.com"
        )

    def _check_token(self, token: str) -> None:
        if not _JWT.fullmatch(token):
            raise ServiceError("InvalidAuthenticationInfo", status=401)
        given = token.encode()
        if not any(hmac.compare_digest(given, known) for known in self._tokens):
            raise ServiceError("InvalidAuthenticationInfo", status=401, headers={"WWW-Authenticate": self._challenge()})

    def _check_shared_key(self, request: Request, value: str) -> None:
        account, _, signature = value.rpartition(":")
        if not account or not signature:
            raise ServiceError("InvalidAuthenticationInfo")
        if account != self._settings.account:
            raise ServiceError("AuthenticationFailed")
        if "x-ms-version" not in request.headers:
            raise ServiceError("MissingRequiredHeader")
        self._check_date(request)
        names = sorted(name.lower() for name in request.headers if name[:5].lower() == "x-ms-")
        if self._matches(request, names, signature):
            return
        # The documents sort headers by their characters; the service's own clients sort as its culture does, where a
        # hyphen weighs nothing. For most sets of headers both are one order.
        as_service = sorted(names, key=lambda name: name.replace("-", ""))
        if as_service == names or not self._matches(request, as_service, signature):
            raise ServiceError("AuthenticationFailed")

    def _matches(self, request: Request, names: list[str], signature: str) -> bool:
        headers = request.headers
        lines = [request.signed_method]
        for name in _SIGNED:
            line = headers.get(name, "")
            if (name == "Content-Length" and line == "0") or (name == "Date" and "x-ms-date" in headers):
                line = ""
            lines.append(line)
        lines.extend(f"{name}:{headers[name].strip()}" for name in names)
        lines.append(f"/{self._settings.account}{request.raw_path}")
        lines.extend(f"{name}:{value}" for name, value in sorted(request.query.items()))
        digest = hmac.digest(self._key, "\n".join(lines).encode(), hashlib.sha256)
        return hmac.compare_digest(base64.b64encode(digest), signature.encode())

    def _check_date(self, request: Request) -> None:
        text = request.headers.get("x-ms-date") or request.headers.get("Date")
        if text is None:
            raise ServiceError("MissingRequiredHeader")
        if not self._settings.clock_skew:
            return
        try:
            date = parsedate_to_datetime(text).timestamp()
        except ValueError:
            raise ServiceError("InvalidHeaderValue") from None
        if abs(time.time() - date) > self._settings.clock_skew:
            raise ServiceError("AuthenticationFailed")

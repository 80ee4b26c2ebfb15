"""Authorisation: bearer tokens, the permissions that operations need, and the endpoints that issue tokens."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.gcs.wire import Answer, json_answer

TOKEN_SECONDS: Final = 3600
# "IAM permissions for JSON methods". What replaces an object needs storage.objects.delete as well.
PERMISSIONS: Final[dict[str, tuple[str, ...]]] = {
    "list-buckets": ("storage.buckets.list",),
    "create-bucket": ("storage.buckets.create",),
    "get-bucket": ("storage.buckets.get",),
    "patch-bucket": ("storage.buckets.update",),
    "lock-retention-policy": ("storage.buckets.update",),
    "delete-bucket": ("storage.buckets.delete",),
    "get-storage-layout": ("storage.objects.list",),
    "list": ("storage.objects.list",),
    "insert": ("storage.objects.create",),
    "start-upload": ("storage.objects.create",),
    "get": ("storage.objects.get",),
    "read": ("storage.objects.get",),
    "move": ("storage.objects.move", "storage.objects.create"),
    "rewrite": ("storage.objects.create", "storage.objects.get"),
    "copy": ("storage.objects.create", "storage.objects.get"),
    "compose": ("storage.objects.create", "storage.objects.get"),
    "patch": ("storage.objects.update",),
    "update": ("storage.objects.update",),
    "delete": ("storage.objects.delete",),
    "restore": ("storage.objects.restore",),
}
REPLACING: Final = frozenset({"insert", "start-upload", "move", "rewrite", "copy", "compose"})


class Access:
    """Verifies each request, and gives out tokens that it then accepts.

    Attributes:
        given_out: How many tokens it gave.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tokens = {token.encode() for token in settings.bearer_tokens}
        self._open = not settings.bearer_tokens
        self.given_out: int = 0

    def verify(self, headers: Mapping[str, str]) -> None:
        """Raises ServiceError (authError) unless the caller is known, or no caller has to be."""
        header = headers.get("Authorization")
        if header is None:
            if not self._open:
                raise ServiceError(
                    "anonymous", headers={"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'}
                )
            return
        scheme, _, token = header.partition(" ")
        given = token.strip().encode()
        known = scheme.lower() == "bearer" and any(hmac.compare_digest(given, one) for one in self._tokens)
        if not known:
            challenge = 'Bearer realm="https://accounts.google.com/", error="invalid_token"'
            raise ServiceError("authError", headers={"WWW-Authenticate": challenge})

    def grants(self, permission: str) -> bool:
        """Whether callers have a permission."""
        return permission not in self._settings.denied

    def check(self, operation: str, place: str, *, replaces: bool) -> None:
        """Raises ServiceError (forbidden) if callers lack what an operation needs."""
        if not self._settings.denied:
            return
        needed = PERMISSIONS.get(operation, ())
        if replaces and operation in REPLACING:
            needed = (*needed, "storage.objects.delete")
        for permission in needed:
            if not self.grants(permission):
                raise ServiceError(
                    "forbidden",
                    (
                        f"The caller does not have {permission} access to {place}. Permission '{permission}' denied "
                        "on resource (or it may not exist)."
                    ),
                )

    def revoke(self) -> None:
        """Makes every token given out or configured worthless, as when one expires."""
        self._tokens.clear()
        self._open = False

    def exchange(self, body: bytes) -> Answer:
        """`POST /token`: a token for a refresh token or a signed assertion (RFC 6749, RFC 7523).

        The signature is not verified: what an attacker could get is this emulator's data.
        """
        form = parse_qs(body.decode("utf-8", "replace"))
        grant = form.get("grant_type", [""])[0]
        if grant == "refresh_token" and form.get("refresh_token"):
            return self._given()
        assertion = form.get("assertion", [""])[0]
        if grant == "urn:ietf:params:oauth:grant-type:jwt-bearer" and assertion.count(".") == 2:
            return self._given()
        said = {"error": "invalid_grant", "error_description": "Bad Request"}
        return Answer(400, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(said).encode())

    def metadata(self, path: str, headers: Mapping[str, str]) -> Answer:
        """What the metadata server of a virtual machine answers, for `GCE_METADATA_HOST`."""
        if headers.get("Metadata-Flavor") != "Google":
            return Answer(403, {"Content-Type": "text/html"}, b"Missing Metadata-Flavor:Google header.")
        flavour = {"Metadata-Flavor": "Google"}
        if path.endswith("/token"):
            answer = self._given()
            answer.headers.update(flavour)
            return answer
        if path.endswith("/project/project-id"):
            return Answer(200, {"Content-Type": "application/text", **flavour}, self._settings.project.encode())
        return Answer(404, {"Content-Type": "text/html"}, b"Not Found")

    def _given(self) -> Answer:
        token = f"ya29.{secrets.token_urlsafe(24)}"
        self._tokens.add(token.encode())
        self.given_out += 1
        return json_answer({"access_token": token, "expires_in": TOKEN_SECONDS, "token_type": "Bearer"})

"""Error responses of the service: reason, status and message of each error, and the JSON that tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping

# Reasons and statuses are those of "HTTP status and error codes for JSON" (cloud.google.com/storage/docs/json_api/v1).
_ERRORS: dict[str, tuple[int, str]] = {
    "notModified": (304, "Not Modified"),
    "invalid": (400, "Invalid argument."),
    "invalidParameter": (400, "Invalid parameter."),
    "parseError": (400, "Parse Error"),
    "required": (400, "Required parameter is missing."),
    "authError": (401, "Invalid Credentials"),
    "anonymous": (401, "Anonymous caller does not have access to the Google Cloud Storage resource."),
    "forbidden": (403, "Access denied."),
    "objectUnderActiveHold": (403, "The object is under an active hold."),
    "retentionPolicyNotMet": (403, "The object's retention period has not passed yet."),
    "retentionPolicyLocked": (403, "The bucket's retention policy is locked."),
    "notFound": (404, "Not Found"),
    "methodNotAllowed": (405, "Method Not Allowed"),
    "conflict": (409, "You already own this bucket. Please select another name."),
    "gone": (410, "The resumable upload session or rewrite token is no longer available."),
    "conditionNotMet": (412, "At least one of the pre-conditions you specified did not hold."),
    "requestedRangeNotSatisfiable": (416, "Request range not satisfiable"),
    "rateLimitExceeded": (429, "The project exceeded the rate limit for requests. Please reduce your request rate."),
    "clientClosedRequest": (499, "Client Closed Request"),
    "backendError": (503, "We encountered an internal error. Please try again."),
    "internalError": (500, "We encountered an internal error. Please try again."),
    "notImplemented": (501, "A header or query you provided requested a function that is not implemented."),
}
# What a fault without a code of its own says, by status.
_REASONS = {status: reason for reason, (status, _) in reversed(_ERRORS.items())} | {408: "requestTimeout"}
_LOCATIONS = {
    "conditionNotMet": ("header", "If-Match"),
    "notModified": ("header", "If-None-Match"),
    "authError": ("header", "Authorization"),
    "anonymous": ("header", "Authorization"),
}
# Reasons that tell two errors apart here and have one name on the wire.
_ON_WIRE = {"anonymous": "required", "gone": "uploadNotFound"}


class ServiceError(Exception):
    """A refusal.

    Attributes:
        reason: The service's word for it.
        status: The HTTP status.
        message: In the service's words.
        headers: What the answer carries beside the usual.
    """

    def __init__(
        self, reason: str, message: str | None = None, *, status: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        known_status, known_message = _ERRORS.get(reason, (500, reason))
        super().__init__(reason)
        self.reason = reason
        self.status: int = status or known_status
        self.message: str = message or known_message
        self.headers: dict[str, str] = dict(headers or {})

    @property
    def code(self) -> str:
        """The reason as the wire tells it."""
        return _ON_WIRE.get(self.reason, self.reason)

    def body(self) -> bytes:
        """The JSON that tells it."""
        detail = {"message": self.message, "domain": "global", "reason": self.code}
        if self.reason in _LOCATIONS:
            detail["locationType"], detail["location"] = _LOCATIONS[self.reason]
        return json.dumps({"error": {"code": self.status, "message": self.message, "errors": [detail]}}).encode()


def reason_of(status: int) -> str:
    """The reason that goes with a status."""
    return _REASONS.get(status, "backendError")


def no_object(bucket: str, name: str) -> ServiceError:
    """An object that is not there, in the service's words."""
    return ServiceError("notFound", f"No such object: {bucket}/{name}")

"""Errors for the refusals of S3, by HTTP status and code."""

from __future__ import annotations

import re
from html import escape
from typing import Final

from committer.advice import page
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StorePartsError,
    StorePermissionError,
    StorePreconditionError,
    StoreUnavailableError,
    StoreUploadNotFoundError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.http import Answer
from committer.stores.http_answers import Refusal
from committer.stores.s3.xml import element_in

# Codes of "Error responses" in the S3 API reference and of the pages of operations; others name their source.
_SLOW: Final = frozenset({
    "SlowDown", "SlowDownRead", "SlowDownWrite", "Busy", "TooManyRequests", "RequestLimitExceeded", "Throttling",
    "ThrottlingException", "BandwidthLimitExceeded",
})  # fmt: skip
_NOT_TAKEN: Final = frozenset({"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"})
_REFUSED: Final = frozenset({
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity",
    "InvalidToken", "NotSignedUp", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
})  # fmt: skip
_EXISTS: Final = frozenset({"FileAlreadyExists", "ObjectAlreadyExists"})
_BAD_PARTS: Final = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall", "InvalidPartNumber"})
_ORIGIN: Final = re.compile(r"(https?)://([A-Za-z0-9.-]+(?::[0-9]+)?)(?:[/?#]|$)")
_IN_OTHER_REGION: Final = frozenset({
    "PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
})  # fmt: skip
RIGHTS: Final = (
    "needed are s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListMultipartUploadParts and s3:AbortMultipartUpload on"
    " the destination, s3:ListBucket and s3:ListBucketMultipartUploads on the bucket, with aws:kms also"
    f" kms:GenerateDataKey and kms:Decrypt of the key ({page('stores/s3.md#permissions')})"
)
_NEEDED: Final = (
    "needed are If-None-Match: * on puts and completions, If-Match on deletes, metadata kept from where an upload began"
    " and a list of uploads"
)
_SERVICES: Final = page("stores/s3.md#services-that-speak-like-s3")
SERVICES: Final = f"{_NEEDED}; committer doctor says what is lacking ({_SERVICES})"
"""Abilities that a job needs from a service with S3's protocol."""
TRIED: Final = f"{_NEEDED} ({_SERVICES})"
"""The same for a service that was tried."""
DIFFERS: Final = f"jobs run here all the same; what each ability is for: {_SERVICES}"
"""Next step for a service that lacks only what no job needs."""
_UNKNOWN_KEYS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"})
_CHECK_KEYS: Final = (
    "check access_key_id, secret_access_key and, of keys that end, session_token, or where the profile and the"
    " environment have them; and that the keys are of the service that endpoint_url names, AWS without it"
)
_NEW_KEYS: Final = (
    "get new keys: log in anew (aws sso login), or give access_key_id, secret_access_key and session_token as they are"
    " now"
)
# Codes of expired temporary keys; a request with new keys may succeed.
ENDED: Final = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"})


def code_of(answer: Answer) -> str:
    """Returns the service's error code; empty for HEAD, and if something in front of the service answered."""
    return element_in(answer.body[:4096], "Code")


def error_of(
    answer: Answer,
    operation: str,
    path: StorePath,
    *,
    changes: bool = True,
    exclusive: bool = False,
    upload: bool = False,
) -> CommitterError:
    """Maps a refusal (status 300 or more, or 200 with an error as its body) to an error.

    Args:
        exclusive: Whether the call required that no object exists; else its condition is about the existing one.
        upload: Whether a missing thing is the upload.
    """
    status, code = answer.status, code_of(answer)
    refusal = Refusal(status, code, answer.headers.get("x-amz-request-id", ""), operation, path)
    if status == 429 or code in _SLOW or (status == 503 and ("Retry-After" in answer.headers or not changes)):
        return refusal.slow_down(answer.headers)
    if code in _NOT_TAKEN:
        return refusal.as_error(StoreUnavailableError, "the request did not arrive whole")
    if 300 <= status < 400 and code not in _IN_OTHER_REGION and "x-amz-bucket-region" not in answer.headers:
        return _redirected(refusal, answer.headers.get("Location", ""))
    if code in _IN_OTHER_REGION or 300 <= status < 400:
        return refusal.as_error(
            ConfigurationError, "the bucket is in another region", next_step="give the option region"
        )
    if status in (401, 403) or code in _REFUSED:
        return _refused(refusal)
    if code in _BAD_PARTS:
        return refusal.as_error(StorePartsError, "the file cannot be made of these parts")
    if status == 404:
        return _missing(refusal, upload=upload)
    if status in (409, 412):
        return _conflict(refusal, exclusive=exclusive)
    if code == "KeyTooLongError":
        return refusal.as_error(InvalidPathError, "the service can hold no such name")
    if status == 501 or code == "NotImplemented":
        return refusal.as_error(UnsupportedError, "the service does not know this request", SERVICES)
    if status in (200, 408) or status >= 500:
        return refusal.failed(changes=changes)
    return refusal.as_error(ConfigurationError if status == 400 else StoreError, "the service refuses the request")


def error_of_code(code: str, operation: str, path: StorePath) -> StoreError:
    """Maps a code in a response to "DeleteObjects", which has no status, to an error."""
    error = error_of(Answer(_STATUSES.get(code, 409), {}, f"<Code>{escape(code)}</Code>".encode()), operation, path)
    return error if isinstance(error, StoreError) else StoreError(error.message, operation=operation, path=path)


def _redirected(refusal: Refusal, location: str) -> CommitterError:
    # Only the origin of the Location: the rest may hold a signature.
    found = _ORIGIN.match(location)
    if found is None:
        return refusal.as_error(
            ConfigurationError,
            "what answers at this address redirects, and does not say where to",
            next_step="give the service's own address as the option endpoint_url",
        )
    scheme, host = found.groups()
    origin = f"{scheme}://{host.removeprefix(f'{refusal.path.authority}.')}"
    return refusal.as_error(
        ConfigurationError,
        f"what answers at this address redirects to {origin}, which is not followed",
        next_step=f"if that is the service, give the option endpoint_url={origin}",
    )


def _refused(refusal: Refusal) -> CommitterError:
    if refusal.code in _UNKNOWN_KEYS or (refusal.status == 401 and not refusal.code):
        return refusal.as_error(StorePermissionError, "the service refuses the keys", _CHECK_KEYS)
    if refusal.code in ("ExpiredToken", "TokenRefreshRequired"):
        return refusal.as_error(StorePermissionError, "the keys have ended", _NEW_KEYS)
    step = RIGHTS
    if refusal.code == "RequestTimeTooSkewed":
        step = "set this machine's clock"
    return refusal.as_error(
        StorePermissionError, "the service refuses the credentials, or they lack a right", next_step=step
    )


def _missing(refusal: Refusal, *, upload: bool) -> CommitterError:
    if refusal.code == "NoSuchBucket":
        return refusal.no_such("bucket")
    if upload:
        return refusal.as_error(StoreUploadNotFoundError, "no such upload is pending: it was completed or aborted")
    return refusal.as_error(StoreNotFoundError, "nothing is there")


def _conflict(refusal: Refusal, *, exclusive: bool) -> CommitterError:
    # 412 is about the object there, 409 about another request in progress ("Conditional writes"); OSS answers 409 for
    # the object there ("0026-00000002").
    if refusal.status == 409 and not (exclusive and refusal.code in _EXISTS):
        return refusal.as_error(StoreConflictError, "another change of it was under way")
    if exclusive:
        return refusal.as_error(StoreExistsError, "something exists there")
    return refusal.as_error(StorePreconditionError, "another file is there")


_ERROR: Final = re.compile(rb"<Error[\s>]")
# Statuses for the errors in responses with 200, of a completion or for one name of many.
_STATUSES: Final = {"InternalError": 500, "ServiceUnavailable": 503, "NoSuchUpload": 404, "PreconditionFailed": 412,
                    "ConditionalRequestConflict": 409, "OperationAborted": 409, "AccessDenied": 403}  # fmt: skip


def refusal_in(answer: Answer) -> Answer | None:
    """Returns the refusal in a response to a completion, which may have begun with 200; None if it holds none."""
    if answer.status >= 300:
        return answer
    if not _ERROR.search(answer.body):
        return None
    # An unknown code counts as 500, outcome unknown: the service had begun.
    return Answer(_STATUSES.get(element_in(answer.body, "Code"), 500), answer.headers, answer.body)

"""Error responses of the service: status, code and message of each error, and how the endpoints word it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.sax.saxutils import escape

# Codes, statuses and messages are those of the error list in each page of the Data Lake Storage Gen2 REST reference
# (learn.microsoft.com/rest/api/storageservices/data-lake-storage-gen2) and of "Common REST API error codes".
_ERRORS: dict[str, tuple[int, str]] = {
    "ContentLengthMustBeZero": (400, "The Content-Length request header must be zero."),
    "InvalidAuthenticationInfo": (
        400,
        "Authentication information is not given in the correct format. Check the value of Authorization header.",
    ),
    "InvalidFlushPosition": (
        400,
        (
            "The uploaded data is not contiguous or the position query parameter value is not equal to the length of "
            "the file after appending the uploaded data."
        ),
    ),
    "InvalidHeaderValue": (400, "The value for one of the HTTP headers is not in the correct format."),
    "InvalidInput": (400, "One of the request inputs is not valid."),
    "InvalidPropertyName": (400, "The property name contains invalid characters."),
    "InvalidMetadata": (400, "The metadata specified is invalid. It has characters that are not permitted."),
    "InvalidQueryParameterValue": (
        400,
        "Value for one of the query parameters specified in the request URI is invalid.",
    ),
    "InvalidResourceName": (400, "The specified resource name contains invalid characters."),
    "InvalidSourceUri": (400, "The source URI is invalid."),
    "InvalidUri": (400, "The request URI is invalid."),
    "Md5Mismatch": (
        400,
        "The MD5 value specified in the request did not match the MD5 value calculated by the server.",
    ),
    "InvalidMd5": (400, "The MD5 value specified in the request is invalid."),
    "MissingRequiredHeader": (400, "An HTTP header that's mandatory for this request is not specified."),
    "MissingRequiredQueryParameter": (400, "A query parameter that's mandatory for this request is not specified."),
    "OutOfRangeQueryParameterValue": (
        400,
        "One of the query parameters specified in the request URI is outside the permissible range.",
    ),
    "UnsupportedHeader": (400, "One of the headers specified in the request is not supported."),
    "UnsupportedQueryParameter": (400, "One of the query parameters specified in the request URI is not supported."),
    "UnsupportedRestVersion": (400, "The specified Rest Version is Unsupported."),
    "NoAuthenticationInformation": (
        401,
        "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
    ),
    "InvalidToken": (
        401,
        "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
    ),
    "AuthenticationFailed": (
        403,
        (
            "Server failed to authenticate the request. Make sure the value of Authorization header is formed "
            "correctly including the signature."
        ),
    ),
    "AuthorizationFailure": (403, "This request is not authorized to perform this operation."),
    "AuthorizationPermissionMismatch": (
        403,
        "This request is not authorized to perform this operation using this permission.",
    ),
    "AuthorizationProtocolMismatch": (
        403,
        "This request is not authorized to perform this operation using this protocol.",
    ),
    "AuthorizationResourceTypeMismatch": (
        403,
        "This request is not authorized to perform this operation using this resource type.",
    ),
    "AuthorizationServiceMismatch": (
        403,
        "This request is not authorized to perform this operation using this service.",
    ),
    "AuthorizationSourceIPMismatch": (
        403,
        "This request is not authorized to perform this operation using this source IP.",
    ),
    "FilesystemNotFound": (404, "The specified filesystem does not exist."),
    "PathNotFound": (404, "The specified path does not exist."),
    "RenameDestinationParentPathNotFound": (404, "The parent directory of the destination path does not exist."),
    "ResourceNotFound": (404, "The specified resource does not exist."),
    "SourcePathNotFound": (404, "The source path for a rename operation does not exist."),
    "UnsupportedHttpVerb": (405, "The resource doesn't support the specified HTTP verb."),
    "DirectoryNotEmpty": (409, "The recursive query parameter value must be true to delete a non-empty directory."),
    "FilesystemAlreadyExists": (409, "The specified filesystem already exists."),
    "InvalidDestinationPath": (
        409,
        "The specified path, or an element of the path, exists and its resource type is invalid for this operation.",
    ),
    "InvalidFlushOperation": (
        409,
        (
            "The resource was created or modified by the Blob Service API and cannot be written to by the Data Lake "
            "Storage Service API."
        ),
    ),
    "InvalidRenameSourcePath": (
        409,
        (
            "The source directory cannot be the same as the destination directory, nor can the destination be a "
            "subdirectory of the source directory."
        ),
    ),
    "InvalidSourceOrDestinationResourceType": (409, "The source and destination resource type must be identical."),
    "LeaseAlreadyPresent": (409, "There is already a lease present."),
    "LeaseIdMismatchWithLeaseOperation": (
        409,
        "The lease ID specified did not match the lease ID for the resource with the specified lease operation.",
    ),
    "LeaseIsAlreadyBroken": (409, "The lease has already been broken and cannot be broken again."),
    "LeaseIsBreakingAndCannotBeAcquired": (
        409,
        "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken.",
    ),
    "LeaseIsBreakingAndCannotBeChanged": (
        409,
        "The lease ID matched, but the lease is currently in breaking state and cannot be changed.",
    ),
    "LeaseIsBrokenAndCannotBeRenewed": (
        409,
        "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.",
    ),
    "LeaseNotPresentWithLeaseOperation": (409, "The lease ID is not present with the specified lease operation."),
    "PathAlreadyExists": (409, "The specified path already exists."),
    "PathConflict": (
        409,
        "The specified path, or an element of the path, exists and its resource type is invalid for this operation.",
    ),
    "ResourceTypeMismatch": (
        409,
        "The resource type specified in the request does not match the type of the resource.",
    ),
    "MissingContentLengthHeader": (411, "Content-Length HTTP header was not specified."),
    "ConditionNotMet": (412, "The condition specified using HTTP conditional header(s) is not met."),
    "LeaseIdMismatch": (412, "The lease ID specified did not match the lease ID for the resource."),
    "LeaseIdMissing": (412, "There is currently a lease on the resource and no lease ID was specified in the request."),
    "LeaseNotPresent": (412, "There is currently no lease on the resource."),
    "LeaseLost": (412, "A lease ID was specified, but the lease for the resource has expired."),
    "SourceConditionNotMet": (412, "The source condition specified using HTTP conditional header(s) is not met."),
    "InvalidRange": (416, "The range specified is invalid for the current size of the resource."),
    "InternalError": (500, "The server encountered an internal error. Please retry the request."),
    "OperationTimedOut": (500, "The operation could not be completed within the permitted time."),
    "NotImplemented": (501, "The requested operation is not implemented on the specified resource."),
    "ServerBusy": (503, "Operations per second is over the account limit."),
}

# The same refusals in the words of the blob endpoint ("Blob service error codes").
_BLOB_ERRORS: dict[str, tuple[str, str]] = {
    "FilesystemNotFound": ("ContainerNotFound", "The specified container does not exist."),
    "FilesystemAlreadyExists": ("ContainerAlreadyExists", "The specified container already exists."),
    "PathNotFound": ("BlobNotFound", "The specified blob does not exist."),
    "PathAlreadyExists": ("BlobAlreadyExists", "The specified blob already exists."),
    "DirectoryNotEmpty": ("DirectoryIsNotEmpty", "This operation is not permitted on a non-empty directory."),
    "LeaseIdMismatch": (
        "LeaseIdMismatchWithBlobOperation",
        "The lease ID specified did not match the lease ID for the blob.",
    ),
    "LeaseNotPresent": ("LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob."),
}


class ServiceError(Exception):
    """A refusal.

    Attributes:
        code: The service's code for it.
        status: The HTTP status.
        message: In the service's words.
        headers: What the answer carries beside the usual.
    """

    def __init__(
        self, code: str, message: str | None = None, *, status: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        known_status, known_message = _ERRORS.get(code, (500, code))
        super().__init__(code)
        self.code = code
        self.status: int = status or known_status
        self.message: str = message or known_message
        self.headers: dict[str, str] = dict(headers or {})


def dfs_body(error: ServiceError, request_id: str, time: str) -> tuple[str, str, bytes]:
    """Code, content type and body of a refusal as the DFS endpoint sends it."""
    message = f"{error.message}\nRequestId:{request_id}\nTime:{time}"
    body = json.dumps({"error": {"code": error.code, "message": message}}, separators=(",", ":"))
    return error.code, "application/json;charset=utf-8", body.encode()


def blob_body(error: ServiceError, request_id: str, time: str) -> tuple[str, str, bytes]:
    """Code, content type and body of a refusal as the blob endpoint sends it."""
    code, message = _BLOB_ERRORS.get(error.code, (error.code, error.message))
    text = f"{message}\nRequestId:{request_id}\nTime:{time}"
    body = (
        f'\ufeff<?xml version="1.0" encoding="utf-8"?><Error><Code>{escape(code)}</Code>'
        f"<Message>{escape(text)}</Message></Error>"
    )
    return code, "application/xml", body.encode()

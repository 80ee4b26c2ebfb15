"""Headers of files, directories and filesystems, on either endpoint."""

from __future__ import annotations

from email.utils import formatdate

from committer_testing.emulators.adls import leases
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.nodes import Filesystem, Node
from committer_testing.emulators.adls.wire import CONTENT_HEADERS, Answer, Request

_dates: dict[int, str] = {}


def http_date(moment: float) -> str:
    """A time as headers and listings write it."""
    second = int(moment)
    text = _dates.get(second)
    if text is None:
        if len(_dates) > 10_000:
            _dates.clear()
        text = _dates[second] = formatdate(second, usegmt=True)
    return text


def version_of(versioned: Node | Filesystem) -> dict[str, str]:
    """ETag and Last-Modified."""
    return {"ETag": versioned.etag, "Last-Modified": http_date(versioned.modified)}


def node_headers(node: Node) -> dict[str, str]:
    """What HEAD and GET tell of a file or directory on both endpoints, user metadata aside."""
    headers = version_of(node)
    headers["Accept-Ranges"] = "bytes"
    headers["Content-Type"] = "application/octet-stream"
    for name, value in node.content.items():
        headers[CONTENT_HEADERS[name]] = value
    headers["x-ms-resource-type"] = "directory" if node.is_directory else "file"
    headers["x-ms-creation-time"] = http_date(node.created)
    headers["x-ms-server-encrypted"] = "true"
    headers["x-ms-owner"] = node.owner
    headers["x-ms-group"] = node.group
    headers["x-ms-permissions"] = shown_permissions(node)
    headers.update(leases.describe(node.lease))
    return headers


def shown_permissions(node: Node) -> str:
    """The mode, with a plus sign behind it when there is more in the access control list."""
    return node.permissions + ("+" if node.acl is not None else "")


def read_answer(request: Request, node: Node, headers: dict[str, str]) -> Answer:
    """The answer to a read: all of the file or the range asked for.

    Raises:
        ServiceError: InvalidRange, or the Range header makes no sense.
    """
    data = node.data
    asked = request.headers.get("x-ms-range") or request.headers.get("Range")
    if asked is None:
        return Answer(200, headers, data)
    unit, _, span = asked.partition("=")
    first, dash, last = span.partition("-")
    if unit.strip() != "bytes" or not dash or not first.isdigit() or (last and not last.isdigit()):
        raise ServiceError("InvalidHeaderValue")
    start = int(first)
    end = min(int(last), len(data) - 1) if last else len(data) - 1
    if start >= len(data):
        raise ServiceError("InvalidRange", headers={"Content-Range": f"bytes */{len(data)}"})
    if end < start:
        raise ServiceError("InvalidHeaderValue")
    if "Content-MD5" in headers:
        # The stored hash is that of the whole file.
        headers["x-ms-content-md5"] = headers["x-ms-blob-content-md5"] = headers.pop("Content-MD5")
    headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
    return Answer(206, headers, data[start : end + 1])


def service_properties(soft_delete_days: int, version: str) -> bytes:
    """The document that "Get Blob Service Properties" answers with; newer versions of the service say more."""
    off = "<Enabled>false</Enabled>"
    metrics = f"<Version>1.0</Version>{off}<RetentionPolicy>{off}</RetentionPolicy>"
    said = (
        "<Logging><Version>1.0</Version><Delete>false</Delete><Read>false</Read><Write>false</Write>"
        f"<RetentionPolicy>{off}</RetentionPolicy></Logging>"
        f"<HourMetrics>{metrics}</HourMetrics><MinuteMetrics>{metrics}</MinuteMetrics><Cors />"
    )
    if version >= "2017-07-29":
        policy = f"<Enabled>true</Enabled><Days>{soft_delete_days}</Days>" if soft_delete_days else off
        said += f"<DeleteRetentionPolicy>{policy}</DeleteRetentionPolicy>"
    if version >= "2018-03-28":
        said += f"<StaticWebsite>{off}</StaticWebsite>"
    text = f'<?xml version="1.0" encoding="utf-8"?><StorageServiceProperties>{said}</StorageServiceProperties>'
    return text.encode()

"""The storage options of S3: what they must be, and what the environment says.

The environment is looked at when a store is made,
in each process for itself: nothing of it travels in a pickle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from committer.errors import ConfigurationError, InvalidPathError, UnsupportedError
from committer.references import Held, Secret
from committer.storage_options import exclusive, no_text, not_of_the_path
from committer.stores.http import checked_endpoint
from committer.stores.s3.access import S3Access, checked_session
from committer.stores.s3.checksums import ALGORITHMS
from committer.stores.s3.names import ENCRYPTION, TABLE, flattened, with_hadoop

STYLES: Final = ("auto", "path", "virtual")
_SECRETS: Final = tuple(option.name for option in TABLE.options if option.secret)


class S3Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was given, checked; secrets are hidden, references to them are not.

    Attributes:
        endpoint_url: Where the service is; None for AWS.
        region: The region; None for what botocore's chain says.
        addressing_style: ``path``, ``virtual``, or ``auto``: virtual on AWS for names that allow it, else path.
        access_key_id: See `S3Access`; so the next three.
        secret_access_key: See `S3Access`.
        session_token: See `S3Access`.
        profile: See `S3Access`.
        session: Holds a boto3 or botocore session.
        storage_class: Of files that tasks write; None for the bucket's.
        server_side_encryption: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``; None for the bucket's.
        kms_key_id: The key for the last two.
        checksum_algorithm: What parts and files are proved with; None for none but the signature.
        service: ``minio`` or ``oss``: a service whose deletes hear no condition; None for one that does all that S3
            does.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: str = "auto"
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    profile: str | None = None
    session: Held | None = None
    storage_class: str | None = None
    server_side_encryption: str | None = None
    kms_key_id: str | None = None
    checksum_algorithm: str | None = None
    service: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, object], bucket: str) -> S3Options:
        """Reads storage options, under any name that `TABLE` knows.

        Raises:
            ConfigurationError: One is unknown, has a value it cannot have, or is at odds with another.
            UnsupportedError: It asks for what this store cannot do.
        """
        found = TABLE.named(with_hadoop(flattened(options), bucket))
        if found.pop("bucket", bucket) != bucket:
            raise not_of_the_path("bucket", bucket)
        values: dict[str, object] = {}
        session = found.pop("session", None)
        if session is not None:
            values["session"] = Held(checked_session(session), "session")
        for name, value in found.items():
            if not isinstance(value, str) or not value:
                raise no_text(name)
            values[name] = Secret(value, name) if name in _SECRETS else value
        return msgspec.structs.replace(cls(), **values).checked()

    def checked(self) -> S3Options:
        """The same, endpoint without slashes at its end.

        Raises:
            ConfigurationError: An option has a value it cannot have, or is at odds with another.
        """
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise _bad("the options access_key_id and secret_access_key go together", "give both, or neither")
        if self.session_token is not None and self.access_key_id is None:
            raise _bad(
                "the option session_token goes with access_key_id and secret_access_key", "give all three, or none"
            )
        if self.profile is not None and self.access_key_id is not None:
            raise exclusive("profile", "access_key_id")
        if self.session is not None and (self.profile is not None or self.access_key_id is not None):
            other = "access_key_id" if self.profile is None else "profile"
            raise exclusive("session", other)
        _one_of("addressing_style", self.addressing_style, STYLES)
        _one_of("server_side_encryption", self.server_side_encryption, ENCRYPTION)
        _one_of("checksum_algorithm", self.checksum_algorithm, ALGORITHMS)
        _one_of("service", self.service, ("minio", "oss"))
        if self.service is not None and self.endpoint() is None:
            raise _bad(
                f"the service {self.service} has no endpoint_url",
                "give where it is: https://s3.oss-cn-hangzhou.aliyuncs.com of Alibaba Cloud OSS in Hangzhou, say",
            )
        if self.kms_key_id is not None and self.server_side_encryption in (None, "AES256"):
            raise _bad(
                "the option kms_key_id goes with server_side_encryption aws:kms or aws:kms:dsse",
                "give server_side_encryption, too",
            )
        for name in ("region", "storage_class", "kms_key_id"):
            value = getattr(self, name)
            if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
                raise _bad(f"the option {name} is none")
        if self.endpoint_url is None:
            return self
        example = "https://minio.example.com:9000"
        return msgspec.structs.replace(self, endpoint_url=checked_endpoint(self.endpoint_url, "endpoint_url", example))

    def of_scheme(self, scheme: str) -> S3Options:
        """The same for a path of a scheme: `oss:` declares the service."""
        return msgspec.structs.replace(self, service=self.service or "oss") if scheme == "oss" else self

    def style(self) -> str:
        """The addressing style; OSS takes no other than ``virtual`` (its page "Compatibility with Amazon S3")."""
        return "virtual" if (self.service, self.addressing_style) == ("oss", "auto") else self.addressing_style

    def endpoint(self) -> str | None:
        """The endpoint that was given, or that the environment names; None for AWS.

        Raises:
            ConfigurationError: The environment's is no URL.
        """
        if self.endpoint_url is not None:
            return self.endpoint_url
        if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
            return None
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            url = os.environ.get(name, "").strip()
            if url:
                return checked_endpoint(url, name, "https://minio.example.com:9000")
        return None

    def access(self) -> S3Access:
        """Keys and region, or where to find them."""
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return S3Access(
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            session_token=self.session_token,
            profile=self.profile,
            session=self.session,
            region=region,
        )


def checked_bucket(scheme: str, authority: str) -> str:
    """The bucket that a URI names.

    Raises:
        InvalidPathError: It names none.
        UnsupportedError: It is a directory bucket, which has other signatures and listings.
    """
    if not authority or set(authority) & set("@:/?#"):
        raise InvalidPathError(f"{scheme}://{authority} names no bucket", next_step=f"write {scheme}://bucket/path")
    if authority.endswith("--x-s3"):
        raise UnsupportedError(
            "directory buckets (S3 Express One Zone) are not in this release",
            operation="open_store",
            path=authority,
            next_step="write to a general purpose bucket",
        )
    return authority


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise _bad(f"the option {name} is {value!r}; it must be one of {', '.join(allowed)}")


def _bad(message: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(message, operation="open_store", next_step=next_step)


def is_host_name(bucket: str) -> bool:
    """Whether a bucket's name can be part of a host's: then its own address works, with TLS if it has no dot."""
    return "." not in bucket and bucket.replace("-", "a").isalnum() and bucket.isascii() and bucket == bucket.lower()


def host_of(origin: str) -> str:
    """The ``Host`` header that goes with an origin: without a port that follows from the scheme."""
    parts = urlsplit(origin)
    standard = ":443" if parts.scheme == "https" else ":80"
    return parts.netloc.lower().removesuffix(standard)

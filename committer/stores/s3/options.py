"""Storage options of S3, and their names in other tools.

Each process reads the environment when it makes a store: a pickle holds nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from committer.errors import ConfigurationError, InvalidPathError, UnsupportedError
from committer.options.references import Held, Secret, resolved
from committer.options.storage import CHOICES, OptionTable, StorageOption, by_name, exclusive, refused
from committer.options.values import SPARK_HADOOP
from committer.stores.http import checked_endpoint
from committer.stores.s3.access import GivenKeys, S3Access, checked_session
from committer.stores.s3.xml import ALGORITHMS

_ROLE: Final = "give profile, a profile of the shared files that names the role, or the role's temporary keys"
_WEB_IDENTITY: Final = "leave it out: botocore's chain reads AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN by itself"
_NOT_ANONYMOUS: Final = "leave it out, and give keys, or let botocore find some: a commit writes"

# Nested options of s3fs, with the names that are understood.
_NESTED: Final[Mapping[str, frozenset[str]]] = {
    "client_kwargs": frozenset(
        {"endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "use_ssl"}
    ),
    "s3_additional_kwargs": frozenset({"StorageClass", "ServerSideEncryption", "SSEKMSKeyId"}),
}
# Switches of other tools; whether http: may be used is the endpoint's matter here.
_BEARING: Final = {"virtual_hosted_style_request": "addressing_style", "allow_http": "", "use_ssl": ""}

TABLE: Final = OptionTable(
    store="S3",
    options=(
        StorageOption(
            "endpoint_url",
            "where the service is; AWS without it",
            others=("endpoint", "aws_endpoint_url", "aws_endpoint"),
            hadoop=("fs.s3a.endpoint",),
        ),
        StorageOption(
            "region",
            "the region; without it what the environment or the profile says, else `us-east-1`",
            others=("aws_region", "region_name", "aws_default_region", "default_region"),
            hadoop=("fs.s3a.endpoint.region",),
        ),
        StorageOption(
            "addressing_style",
            "`path`, `virtual`, or `auto`: virtual on AWS for names without a dot, else path",
            others=("aws_s3_addressing_style",),
            hadoop=("fs.s3a.path.style.access",),
        ),
        StorageOption(
            "access_key_id",
            "the id of a key",
            secret=True,
            others=("aws_access_key_id", "key"),
            hadoop=("fs.s3a.access.key",),
        ),
        StorageOption(
            "secret_access_key",
            "the key itself",
            secret=True,
            others=("aws_secret_access_key", "secret"),
            hadoop=("fs.s3a.secret.key",),
        ),
        StorageOption(
            "session_token",
            "of temporary keys",
            secret=True,
            others=("aws_session_token", "aws_token", "token"),
            hadoop=("fs.s3a.session.token",),
        ),
        StorageOption("profile", "a profile of the shared files", others=("aws_profile", "profile_name")),
        StorageOption(
            "storage_class",
            "of files that tasks write; records stay in the bucket's class",
            others=("storageclass",),
            hadoop=("fs.s3a.create.storage.class",),
        ),
        StorageOption(
            "server_side_encryption",
            "`AES256`, `aws:kms`, `aws:kms:dsse`; Hadoop's names for them under its key",
            others=("aws_server_side_encryption", "serversideencryption"),
            hadoop=("fs.s3a.encryption.algorithm",),
        ),
        StorageOption(
            "kms_key_id",
            "the key for the last two",
            others=("aws_sse_kms_key_id", "ssekmskeyid"),
            hadoop=("fs.s3a.encryption.key",),
        ),
        StorageOption(
            "checksum_algorithm",
            "`CRC32`, `SHA1`, `SHA256`; not `CRC32C`, which Python cannot compute fast",
            others=("aws_checksum_algorithm",),
            hadoop=("fs.s3a.create.checksum.algorithm",),
        ),
        StorageOption(
            "service",
            "`minio` or `oss`, [services without conditional deletes](#minio-and-alibaba-cloud-oss); `oss:` paths"
            " imply `oss`",
        ),
        StorageOption(
            "bucket",
            "the path says it; another one is refused",
            others=("bucket_name", "aws_bucket", "aws_bucket_name"),
        ),
        StorageOption("session", "a boto3 or botocore session, for keys and region", instance=True),
        StorageOption("http_session", "an aiohttp session to send requests with", instance=True),
    ),
    advice=by_name({
        _ROLE: ("role_arn", "aws_role_arn", "aws_iam_role_arn", "aws_iam_role_session_name"),
        _WEB_IDENTITY: ("aws_web_identity_token_file", "web_identity_token_file"),
        "leave it out: every write that must not replace is a conditional one here": (
            "aws_conditional_put", "conditional_put", "aws_copy_if_not_exists", "copy_if_not_exists",
        ),
        "leave it out: jobs keep out of one another's way by records in the destination": (
            "aws_s3_locking_provider", "locking_provider", "delta_dynamo_table_name",
        ),
        CHOICES: ("max_concurrency", "max_retries", "retry_timeout_ms", "timeout", "connect_timeout"),
    }),
    switches=by_name({
        _NOT_ANONYMOUS: ("anon", "aws_skip_signature", "skip_signature"),
        "leave it out: who writes pays for requests here": ("requester_pays", "aws_request_payer", "request_payer"),
        "leave it out: nothing is renamed on S3": ("aws_s3_allow_unsafe_rename", "s3_allow_unsafe_rename"),
        "directory buckets are not in this release": ("aws_s3_express", "s3_express"),
        "leave it out: every body is signed": ("aws_unsigned_payload", "unsigned_payload"),
        "leave it out": ("version_aware", "asynchronous"),
    }),
    read_apart={
        **dict.fromkeys((*_NESTED, "config_kwargs"), ""),
        **{f"{prefix}{name}": decides for name, decides in _BEARING.items() for prefix in ("", "aws_")},
    },
    hadoop_prefix="fs.s3a.",
    hadoop_only=("fs.s3a.connection.ssl.enabled", "fs.s3a.aws.credentials.provider"),
    hadoop_access=frozenset({"fs.s3a.aws.credentials.provider"}),
    hadoop_scope="fs.s3a.bucket.",
)  # fmt: skip

# Names of hadoop-aws (S3AEncryptionMethods).
_HADOOP_ENCRYPTION: Final = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
ENCRYPTION: Final = tuple(_HADOOP_ENCRYPTION.values())


def flattened(options: Mapping[str, object]) -> dict[str, object]:
    """Flattens s3fs's nested options, and reads the switches of other tools."""
    flat: dict[str, object] = {}

    def add(name: str, value: object, at: str) -> None:
        if name in flat:
            raise refused(f"the option {name} is given twice, once in {at}")
        flat[name] = value

    for key, value in options.items():
        folded = key.lower()
        if folded in _NESTED and value is not None:
            for name, inner in _mapping(key, value).items():
                if name not in _NESTED[folded]:
                    raise refused(
                        f"the option {key} holds {name!r}, which is not understood",
                        f"understood are {', '.join(sorted(_NESTED[folded]))}",
                    )
                add(name, inner, key)
        elif folded == "config_kwargs" and value is not None:
            style = _addressing_of(key, value)
            if style is not None:
                add("addressing_style", style, key)
        else:
            add(key, value, key)
    return _with_switches(flat)


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(f"the option {key} is no mapping but a {type(value).__name__}")
    return value


def _addressing_of(key: str, value: object) -> object:
    for name, inner in _mapping(key, value).items():
        more = set(inner) - {"addressing_style"} if name == "s3" and isinstance(inner, Mapping) else {name}
        if more:
            raise refused(
                f"the option {key} holds {min(more)!r}, which is not understood",
                "understood is {'s3': {'addressing_style': ...}}; how many requests are in flight says"
                " config=CommitterConfig(io_concurrency=...)",
            )
    return value["s3"]["addressing_style"] if value and value["s3"] else None  # type: ignore[index]


def _with_switches(given: Mapping[str, object]) -> dict[str, object]:
    """Reads the switches of other tools that bear on this library's options."""
    options = {key: value for key, value in given.items() if _bearing(key) not in _BEARING}
    names = {option.name: key for key in options if _is_known(key) and (option := TABLE.find(key))}
    endpoint = str(options.get(names.get("endpoint_url", ""), ""))
    for key, value in given.items():
        name = _bearing(key)
        if name not in _BEARING or value is None:
            continue
        on = boolean(key, value)
        if name == "virtual_hosted_style_request":
            if "addressing_style" in names:
                raise exclusive(key, names["addressing_style"])
            options["addressing_style"] = "virtual" if on else "path"
        elif name == "allow_http" and not on and endpoint.startswith("http:"):
            raise refused(f"the option {key} forbids the endpoint that is given, which begins with http:")
        elif name == "use_ssl" and not on and not endpoint.startswith("http:"):
            raise refused(f"the option {key} asks for no TLS", "give endpoint_url=http://HOST:PORT")
    return options


def _bearing(key: str) -> str:
    return key.lower().removeprefix("aws_")


def _is_known(key: str) -> bool:
    try:
        return TABLE.find(key) is not None
    except ConfigurationError:
        return False


def with_hadoop(options: Mapping[str, object], bucket: str) -> dict[str, object]:
    """Translates Hadoop's keys to this library's options; a key for the bucket wins over a general one."""
    hadoop: dict[str, object] = {}
    for key, value in sorted(options.items(), key=lambda item: _plain(item[0]).startswith(TABLE.hadoop_scope)):
        if not TABLE.is_hadoop(key):
            continue
        option, base = TABLE.find(key), TABLE.hadoop_base(_plain(key))
        if base is not None and value is not None and TABLE.is_for(key, bucket):
            text = str(value)
            hadoop[base] = text if option is not None and option.secret else resolved(text, key)
    _check_provider(hadoop)
    return TABLE.with_hadoop(options, {plain: _translated(plain, value, hadoop) for plain, value in hadoop.items()})


def _plain(key: str) -> str:
    return key.lower().removeprefix(SPARK_HADOOP)


def _translated(key: str, value: object, hadoop: Mapping[str, object]) -> object:
    text = str(value).strip()
    if key == "fs.s3a.endpoint":
        if "://" in text:
            return text
        if not text or text == "s3.amazonaws.com":
            return None
        return f"{'https' if boolean(_TLS, hadoop.get(_TLS, True)) else 'http'}://{text}"
    if key == "fs.s3a.path.style.access":
        return "path" if boolean(key, value) else "virtual"
    if key == "fs.s3a.encryption.algorithm":
        if not text:
            return None
        if text.upper() not in _HADOOP_ENCRYPTION:
            raise UnsupportedError(
                f"the option {key} is {text!r}: of S3's ways to encrypt, those with a key of the client's are not here",
                operation="open_store",
                next_step=f"one of {', '.join(_HADOOP_ENCRYPTION)}",
            )
        return _HADOOP_ENCRYPTION[text.upper()]
    if key in ("fs.s3a.create.storage.class", "fs.s3a.create.checksum.algorithm"):
        return text.upper() or None
    return text or None


_TLS: Final = "fs.s3a.connection.ssl.enabled"
_PROVIDER: Final = "fs.s3a.aws.credentials.provider"


def _check_provider(hadoop: Mapping[str, object]) -> None:
    """Refuses key providers that neither given keys nor botocore's chain can replace."""
    classes = [name.strip() for name in str(hadoop.get(_PROVIDER, "")).split(",") if name.strip()]
    if not classes:
        return
    if all("Anonymous" in name for name in classes):
        raise refused(f"the option {_PROVIDER} asks for anonymous access", _NOT_ANONYMOUS)
    assumed = [name for name in classes if "AssumedRole" in name]
    if assumed:
        raise refused(f"the option {_PROVIDER} names {assumed[0]}, which is not here", _ROLE)


def boolean(key: str, value: object) -> bool:
    """Parses a switch."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise refused(f"the option {key} is {text!r}; it must be true or false")
    return text == "true"


STYLES: Final = ("auto", "path", "virtual")
_SECRETS: Final = frozenset(option.name for option in TABLE.options if option.secret)


class S3Options(GivenKeys, frozen=True, kw_only=True):
    """Checked storage options of one store; their repr shows references, but no secrets.

    Attributes:
        endpoint_url: URL of the service; None for AWS.
        region: None for the region of botocore's chain.
        addressing_style: ``path``, ``virtual``, or ``auto``: virtual on AWS for names that allow it, else path.
        storage_class: Of files that tasks write; None for the bucket's.
        server_side_encryption: ``AES256``, ``aws:kms`` or ``aws:kms:dsse`` (with `kms_key_id`); None for the bucket's.
        checksum_algorithm: Checksum of parts and files; None for the signature alone.
        service: ``minio`` or ``oss``, whose deletes ignore conditions; None for all of S3's abilities.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: str = "auto"
    storage_class: str | None = None
    server_side_encryption: str | None = None
    kms_key_id: str | None = None
    checksum_algorithm: str | None = None
    service: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, object], bucket: str) -> S3Options:
        """Reads storage options, under any name that `TABLE` knows."""
        values: dict[str, object] = TABLE.texts(with_hadoop(flattened(options), bucket), bucket=bucket)
        if "session" in values:
            values["session"] = Held(checked_session(values["session"]), "session")
        for name in values.keys() & _SECRETS:
            values[name] = Secret(str(values[name]), name)
        return msgspec.structs.replace(cls(), **values).checked()

    def checked(self) -> S3Options:
        """Checks the options against one another, and removes trailing slashes of the endpoint."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise refused("the options access_key_id and secret_access_key go together", "give both, or neither")
        if self.session_token is not None and self.access_key_id is None:
            raise refused(
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
            raise refused(
                f"the service {self.service} has no endpoint_url",
                "give where it is: https://s3.oss-cn-hangzhou.aliyuncs.com of Alibaba Cloud OSS in Hangzhou, say",
            )
        if self.kms_key_id is not None and self.server_side_encryption in (None, "AES256"):
            raise refused(
                "the option kms_key_id goes with server_side_encryption aws:kms or aws:kms:dsse",
                "give server_side_encryption, too",
            )
        for name in ("region", "storage_class", "kms_key_id"):
            value = getattr(self, name)
            if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
                raise refused(f"the option {name} is none")
        if self.endpoint_url is None:
            return self
        example = "https://minio.example.com:9000"
        return msgspec.structs.replace(self, endpoint_url=checked_endpoint(self.endpoint_url, "endpoint_url", example))

    def of_scheme(self, scheme: str) -> S3Options:
        """Returns the options for a path's scheme: `oss:` implies the service."""
        return msgspec.structs.replace(self, service=self.service or "oss") if scheme == "oss" else self

    def style(self) -> str:
        """Returns the addressing style; OSS takes only ``virtual`` (its page "Compatibility with Amazon S3")."""
        return "virtual" if (self.service, self.addressing_style) == ("oss", "auto") else self.addressing_style

    def endpoint(self) -> str | None:
        """Returns the option's endpoint, or the environment's; None for AWS."""
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
        """Returns the keys and region, or where to find them."""
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return S3Access(self, region)


def checked_bucket(scheme: str, authority: str) -> str:
    """Checks the bucket that a URI names; directory buckets are refused, which have other signatures and listings."""
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
        raise refused(f"the option {name} is {value!r}; it must be one of {', '.join(allowed)}")


def is_host_name(bucket: str) -> bool:
    """Returns True if a bucket's name can be part of a host name; a dot would break TLS."""
    return "." not in bucket and bucket.replace("-", "a").isalnum() and bucket.isascii() and bucket == bucket.lower()


def host_of(origin: str) -> str:
    """Returns the ``Host`` header for an origin, without the scheme's standard port."""
    parts = urlsplit(origin)
    standard = ":443" if parts.scheme == "https" else ":80"
    return parts.netloc.lower().removesuffix(standard)

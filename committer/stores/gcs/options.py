"""Storage options of Google Cloud Storage, and their names in other tools.

Each process reads the environment when it makes a store: a pickle holds nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from committer.errors import InvalidPathError
from committer.options.references import Secret
from committer.options.storage import CHOICES, OptionTable, StorageOption, by_name, exclusive, refused
from committer.options.values import SPARK_HADOOP
from committer.stores.gcs.access import Access, Anonymous, GivenToken, GotTokens
from committer.stores.http import checked_endpoint

_FOUND_BY_ITSELF: Final = "leave it out: application default credentials are found by themselves"

TABLE: Final = OptionTable(
    store="Google Cloud Storage",
    options=(
        StorageOption(
            "endpoint",
            "the service's URL, where it is not `https://storage.googleapis.com`: a private endpoint, an emulator;"
            " `STORAGE_EMULATOR_HOST` names one, too",
            others=("endpoint_url", "google_endpoint_url", "google_base_url", "base_url"),
            hadoop=("fs.gs.storage.root.url",),
        ),
        StorageOption(
            "token",
            "an OAuth token, which is not renewed; `anonymous` sends none",
            secret=True,
            others=("bearer_token", "google_bearer_token"),
        ),
        StorageOption(
            "service_file",
            "the path of a credentials file in JSON; without it, application default credentials: the environment,"
            " `gcloud auth application-default login`, or the machine's service account",
            others=(
                "google_service_account", "google_service_account_path", "service_account", "service_account_path",
                "google_application_credentials", "application_credentials",
            ),
            hadoop=("fs.gs.auth.service.account.json.keyfile",),
        ),
        StorageOption(
            "user_project",
            "the project that pays for requests to a bucket whose requester pays",
            others=("google_user_project",),
            hadoop=("fs.gs.requester.pays.project.id",),
        ),
        StorageOption("bucket", "the path says it; another one is refused", others=("google_bucket", "bucket_name")),
        StorageOption("http_session", "an aiohttp session to send requests with", instance=True),
    ),
    advice=by_name({
        "write it to a file and give service_file, its path": ("google_service_account_key", "service_account_key"),
        "leave it out: nothing here makes a bucket": ("project", "project_id", "google_project"),
        "give http_session=, an aiohttp session": ("session", "session_kwargs"),
        "leave it out: files are sent in chunks of 8 MiB": ("block_size",),
        CHOICES: ("max_retries", "retry_timeout", "timeout", "connect_timeout"),
    }),
    switches=by_name({
        "give user_project, the project that pays": ("requester_pays",),
        "give token=anonymous": ("google_skip_signature", "skip_signature"),
        _FOUND_BY_ITSELF: ("use_application_default",),
    }),
    hadoop_prefix="fs.gs.",
    hadoop_only=(
        "fs.gs.auth.type",
        "fs.gs.project.id",
        "fs.gs.requester.pays.mode",
        "fs.gs.requester.pays.buckets",
    ),
    hadoop_access=frozenset({"fs.gs.auth.type"}),
)  # fmt: skip

_AUTH: Final = {
    "APPLICATION_DEFAULT": "",
    "COMPUTE_ENGINE": "",
    "SERVICE_ACCOUNT_JSON_KEYFILE": "service_file",
    "UNAUTHENTICATED": "token",
}
_PAYS: Final = {"ENABLED", "AUTO", "CUSTOM"}


def with_hadoop(options: Mapping[str, object], bucket: str) -> dict[str, object]:
    """Translates the ``fs.gs.`` keys of Google's connector to this library's options."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if TABLE.is_hadoop(key) and value is not None:
            TABLE.find(key)
            found[key.lower().removeprefix(SPARK_HADOOP)] = str(value).strip()
    kind = found.get("fs.gs.auth.type", "").upper()
    if kind and kind not in _AUTH:
        raise refused(f"the option fs.gs.auth.type is {kind}, which is not here", "give service_file or token")
    mode = found.get("fs.gs.requester.pays.mode", "DISABLED").upper()
    buckets = [one.strip() for one in found.get("fs.gs.requester.pays.buckets", "").split(",")]
    if mode not in _PAYS or (mode == "CUSTOM" and bucket not in buckets):
        found.pop("fs.gs.requester.pays.project.id", None)
    if kind and _AUTH[kind] != "service_file":
        found.pop("fs.gs.auth.service.account.json.keyfile", None)
    own = TABLE.with_hadoop(options, found)
    if _AUTH.get(kind) == "token" and not {"token", "service_file"} & TABLE.spelled(options).keys():
        own["token"] = "anonymous"  # noqa: S105 - says that there is none
    return own


SERVICE: Final = "https://storage.googleapis.com"
ANONYMOUS: Final = "anonymous"
# Values other than tokens that gcsfs takes as its option token.
_FOUND: Final = frozenset({"google_default", "cloud", "cache", "browser"})
_PATHS: Final = ("/", "~", "./", "../")
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class GcsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Checked storage options of one store; their repr shows references, but no secrets."""

    endpoint: str | None = None
    token: Secret | None = None
    anonymous: bool = False
    service_file: str | None = None
    user_project: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, object], bucket: str) -> GcsOptions:
        """Reads storage options, under any name that `TABLE` knows."""
        values: dict[str, object] = {}
        for name, value in TABLE.texts(with_hadoop(options, bucket), bucket=bucket).items():
            if name != "token":
                values[name] = value
            elif value in (ANONYMOUS, "anon"):
                values["anonymous"] = True
            elif value in _FOUND:
                raise refused(f"the option token is an OAuth token, not {value!r}", _FOUND_BY_ITSELF)
            elif value.startswith(_PATHS) or value.endswith(".json"):
                # gcsfs takes such a path. A token never looks like one.
                raise refused(
                    "the option token is an OAuth token, not the path of a file", "give the path as service_file"
                )
            else:
                values[name] = Secret(value, name)
        return msgspec.structs.replace(cls(), **values).checked()

    def checked(self) -> GcsOptions:
        """Checks the options against one another, and removes trailing slashes of the endpoint."""
        if self.service_file is not None and (self.token is not None or self.anonymous):
            raise exclusive("service_file", "token")
        if self.user_project is not None and not (self.user_project.isascii() and self.user_project.isprintable()):
            raise refused("the option user_project is none", "give the id of a project, such as my-project-123")
        if self.endpoint is None:
            return self
        return msgspec.structs.replace(self, endpoint=checked_endpoint(self.endpoint, "endpoint", SERVICE))

    def place(self) -> str:
        """Returns the service's URL: the option's, the environment's, or Google's."""
        if self.endpoint is not None:
            return self.endpoint
        named = os.environ.get("STORAGE_EMULATOR_HOST", "").strip()
        if not named:
            return SERVICE
        return checked_endpoint(named if "://" in named else f"http://{named}", "STORAGE_EMULATOR_HOST", SERVICE)

    def access(self) -> Access:
        """Returns the access for the options; refuses to send a token to another machine without TLS."""
        place = self.place()
        given: Access
        if self.token is not None:
            given = GivenToken(self.token)
        elif self.service_file is not None:
            given = GotTokens(self.service_file)
        elif self.anonymous or place.startswith("http:"):
            # Google's clients do the same with an emulator.
            given = Anonymous()
        else:
            given = GotTokens()
        if given.needs_tls and place.startswith("http:") and urlsplit(place).hostname not in _LOCAL:
            raise refused(
                "a token is never sent to another machine without TLS, and the endpoint begins with http:",
                "give token=anonymous, or an endpoint that begins with https:",
            )
        return given


def checked_bucket(scheme: str, authority: str) -> str:
    """Checks the bucket that a URI names."""
    if not authority or set(authority) & set("@:/?#%"):
        raise InvalidPathError(f"{scheme}://{authority} names no bucket", next_step=f"write {scheme}://bucket/path")
    return authority

"""The names of the storage options of Google Cloud Storage: this library's, and those of Hadoop, delta-rs and gcsfs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.errors import ConfigurationError
from committer.option_values import SPARK_HADOOP
from committer.storage_options import OptionTable, StorageOption, exclusive

_IN_FILE: Final = "write it to a file and give service_file, its path"
_FOUND_BY_ITSELF: Final = "leave it out: application default credentials are found by themselves"
_CHOICES: Final = "give config=CommitterConfig(io_concurrency=..., io_rate=...): those are choices of the commit"

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
    advice={
        **dict.fromkeys(("google_service_account_key", "service_account_key"), _IN_FILE),
        **dict.fromkeys(("project", "project_id", "google_project"), "leave it out: nothing here makes a bucket"),
        "session": "give http_session=, an aiohttp session",
        "session_kwargs": "give http_session=, an aiohttp session",
        "block_size": "leave it out: files are sent in chunks of 8 MiB",
        **dict.fromkeys(("max_retries", "retry_timeout", "timeout", "connect_timeout"), _CHOICES),
    },
    switches={
        **dict.fromkeys(("requester_pays",), "give user_project, the project that pays"),
        **dict.fromkeys(("google_skip_signature", "skip_signature"), "give token=anonymous"),
        "use_application_default": _FOUND_BY_ITSELF,
    },
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
    """The options with the ``fs.gs.`` keys of Google's connector read as this library's.

    Raises:
        ConfigurationError: A key is unknown, has a value it cannot have, or gives what an option gives, too.
    """
    own = {key: value for key, value in options.items() if not TABLE.is_hadoop(key)}
    found: dict[str, str] = {}
    for key, value in options.items():
        if TABLE.is_hadoop(key) and value is not None:
            TABLE.find(key)
            found[key.lower().removeprefix(SPARK_HADOOP)] = str(value).strip()
    kind = found.pop("fs.gs.auth.type", "").upper()
    if kind and kind not in _AUTH:
        raise _bad(f"the option fs.gs.auth.type is {kind}, which is not here", "give service_file or token")
    found.pop("fs.gs.project.id", None)
    mode = found.pop("fs.gs.requester.pays.mode", "DISABLED").upper()
    buckets = [one.strip() for one in found.pop("fs.gs.requester.pays.buckets", "").split(",")]
    if mode not in _PAYS or (mode == "CUSTOM" and bucket not in buckets):
        found.pop("fs.gs.requester.pays.project.id", None)
    if kind and _AUTH[kind] != "service_file":
        found.pop("fs.gs.auth.service.account.json.keyfile", None)
    spelled = {option.name: key for key in own if (option := TABLE.find(key)) is not None and own[key] is not None}
    for key, text in found.items():
        option = TABLE.find(key)
        assert option is not None  # noqa: S101
        if option.name in spelled:
            raise exclusive(spelled[option.name], key)
        own[option.name] = text
    if _AUTH.get(kind) == "token" and not {"token", "service_file"} & spelled.keys():
        own["token"] = "anonymous"  # noqa: S105 - says that there is none
    return own


def _bad(message: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(message, operation="open_store", next_step=next_step)

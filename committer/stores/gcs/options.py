"""The storage options of Google Cloud Storage: what they must be, and what the environment says.

The environment is looked at when a store is made, in each process for itself: nothing of it travels in a pickle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from committer.errors import ConfigurationError, InvalidPathError
from committer.references import Secret
from committer.storage_options import exclusive, no_text, not_of_the_path
from committer.stores.gcs.access import Access, Anonymous, GivenToken, GotTokens
from committer.stores.gcs.names import TABLE, with_hadoop
from committer.stores.http import checked_endpoint

SERVICE: Final = "https://storage.googleapis.com"
ANONYMOUS: Final = "anonymous"
# What gcsfs takes as a token beside one.
_FOUND: Final = frozenset({"google_default", "cloud", "cache", "browser"})
_PATHS: Final = ("/", "~", "./", "../")
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class GcsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was given, checked; secrets are hidden, references to them are not.

    Attributes:
        endpoint: Where the service is; None for Google's.
        token: An OAuth token.
        anonymous: Whether no token is sent.
        service_file: A credentials file.
        user_project: The project that pays.
    """

    endpoint: str | None = None
    token: Secret | None = None
    anonymous: bool = False
    service_file: str | None = None
    user_project: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, object], bucket: str) -> GcsOptions:
        """Reads storage options, under any name that `TABLE` knows.

        Raises:
            ConfigurationError: One is unknown, has a value it cannot have, or is at odds with another.
        """
        found = TABLE.named(with_hadoop(options, bucket))
        if found.pop("bucket", bucket) != bucket:
            raise not_of_the_path("bucket", bucket)
        values: dict[str, object] = {}
        for name, value in found.items():
            if not isinstance(value, str) or not value:
                raise no_text(name)
            if name != "token":
                values[name] = value
            elif value in (ANONYMOUS, "anon"):
                values["anonymous"] = True
            elif value in _FOUND:
                raise _bad(
                    f"the option token is an OAuth token, not {value!r}",
                    "leave it out: application default credentials are found by themselves",
                )
            elif value.startswith(_PATHS) or value.endswith(".json"):
                # As gcsfs takes one. A token never looks like that.
                raise _bad(
                    "the option token is an OAuth token, not the path of a file", "give the path as service_file"
                )
            else:
                values[name] = Secret(value, name)
        return msgspec.structs.replace(cls(), **values).checked()

    def checked(self) -> GcsOptions:
        """The same, endpoint without slashes at its end.

        Raises:
            ConfigurationError: An option has a value it cannot have, or is at odds with another.
        """
        if self.service_file is not None and (self.token is not None or self.anonymous):
            raise exclusive("service_file", "token")
        if self.user_project is not None and not (self.user_project.isascii() and self.user_project.isprintable()):
            raise _bad("the option user_project is none", "give the id of a project, such as my-project-123")
        if self.endpoint is None:
            return self
        return msgspec.structs.replace(self, endpoint=checked_endpoint(self.endpoint, "endpoint", SERVICE))

    def place(self) -> str:
        """The service's URL: what was given, what the environment names, or Google's.

        Raises:
            ConfigurationError: The environment's is no URL.
        """
        if self.endpoint is not None:
            return self.endpoint
        named = os.environ.get("STORAGE_EMULATOR_HOST", "").strip()
        if not named:
            return SERVICE
        return checked_endpoint(named if "://" in named else f"http://{named}", "STORAGE_EMULATOR_HOST", SERVICE)

    def access(self) -> Access:
        """What lets requests in.

        Raises:
            ConfigurationError: A token would go to another machine without TLS.
        """
        place = self.place()
        given: Access
        if self.token is not None:
            given = GivenToken(self.token)
        elif self.service_file is not None:
            given = GotTokens(self.service_file)
        elif self.anonymous or place.startswith("http:"):
            # As Google's clients do with an emulator.
            given = Anonymous()
        else:
            given = GotTokens()
        if given.sends_token and place.startswith("http:") and urlsplit(place).hostname not in _LOCAL:
            raise _bad(
                "a token is never sent to another machine without TLS, and the endpoint begins with http:",
                "give token=anonymous, or an endpoint that begins with https:",
            )
        return given


def checked_bucket(scheme: str, authority: str) -> str:
    """The bucket that a URI names.

    Raises:
        InvalidPathError: It names none.
    """
    if not authority or set(authority) & set("@:/?#%"):
        raise InvalidPathError(f"{scheme}://{authority} names no bucket", next_step=f"write {scheme}://bucket/path")
    return authority


def _bad(message: str, next_step: str = "") -> ConfigurationError:
    return ConfigurationError(message, operation="open_store", next_step=next_step)

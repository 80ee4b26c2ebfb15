"""The storage options of Azure Data Lake Storage Gen2: what may be given, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.errors import ConfigurationError
from committer.stores._adls_access import Access, SharedAccessSignature, SharedKey, Token
from committer.stores._secrets import Secret, is_reference, resolved

OPTIONS: Final = ("endpoint", "account_key", "sas_token", "connection_string", "credential")


class _InConnectionString(Secret):
    """A part of a connection string that an environment variable holds."""

    def __init__(self, value: str | None, option: str, part: str) -> None:
        super().__init__(value, option)
        self._part = part

    def __reduce__(self) -> tuple[object, ...]:
        return _InConnectionString, (self._value, self.option, self._part)

    def reveal(self) -> str:
        """See `Secret.reveal`."""
        return parse_connection_string(self._value).get(self._part, "")


def access_of(account: str, options: Mapping[str, object]) -> Access:
    """How the storage options say to be let in.

    Args:
        account: The account's name.
        options: At most one of ``account_key``, ``sas_token`` and ``credential`` that is not None; with none of them
            `DefaultAzureCredential` finds its way.

    Raises:
        ConfigurationError: There are several, or one is no text and no credential.
    """
    given = [name for name in ("account_key", "sas_token", "credential") if options.get(name) is not None]
    if len(given) > 1:
        raise ConfigurationError(f"the options {' and '.join(given)} exclude one another", operation="open_store")
    if not given:
        return Token()
    name, value = given[0], options[given[0]]
    if name != "credential":
        if not isinstance(value, Secret):
            value = Secret(_text(name, value), name)
        return SharedKey(account, value) if name == "account_key" else SharedAccessSignature(value)
    if isinstance(value, Access):
        return value
    if callable(getattr(value, "get_token", None)):
        return Token(value)
    # AzureSasCredential and AzureNamedKeyCredential of azure-core.
    signature, named_key = getattr(value, "signature", None), getattr(value, "named_key", None)
    if isinstance(signature, str):
        return SharedAccessSignature(Secret(signature, name))
    if named_key is not None:
        return SharedKey(str(named_key.name), Secret(str(named_key.key), name))
    raise ConfigurationError(
        f"the option credential is a {type(value).__name__}, which has no get_token",
        operation="open_store",
        next_step="give a credential of azure-identity, or account_key or sas_token",
    )


def parse_connection_string(text: object) -> dict[str, str]:
    """The parts of a connection string, by their names in lower case.

    Args:
        text: The string, or ``env:NAME``.

    Raises:
        ConfigurationError: It is none; what it says is not repeated.
    """
    value = _text("connection_string", text)
    if value.startswith("file:"):
        raise ConfigurationError(
            "the option connection_string cannot be read from a file: it holds the endpoint, needed at once",
            operation="open_store",
            next_step="give it as env:NAME, or endpoint and account_key=file:PATH",
        )
    parts: dict[str, str] = {}
    for part in resolved(value, "connection_string").split(";"):
        if part.strip():
            name, equals, content = part.partition("=")
            if not equals:
                raise ConfigurationError(
                    "the option connection_string is none: it has a part without an equals sign", operation="open_store"
                )
            parts[name.strip().lower()] = content.strip()
    return parts


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"the option {name} is no text, or empty", operation="open_store")
    return value


def from_connection_string(text: object, account: str, endpoint: str | None, options: dict[str, object]) -> str | None:
    """Fills in the options that a connection string gives, and returns the endpoint it names, if it names one.

    Raises:
        ConfigurationError: It is none, or for another account, or what it gives is given beside it, too.
    """
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        raise ConfigurationError(
            f"the options connection_string and {given[0]} exclude one another", operation="open_store"
        )
    parts = parse_connection_string(text)
    if parts.get("accountname", account) != account:
        raise ConfigurationError(
            f"the option connection_string is for another account than the path's, {account}", operation="open_store"
        )
    for part, option in (("accountkey", "account_key"), ("sharedaccesssignature", "sas_token")):
        if parts.get(part):
            if isinstance(text, str) and is_reference(text):
                options[option] = _InConnectionString(text, "connection_string", part)
            else:
                options[option] = Secret(parts[part], "connection_string")
            break
    if endpoint or parts.get("dfsendpoint"):
        return endpoint or parts["dfsendpoint"]
    if parts.get("blobendpoint"):
        return parts["blobendpoint"].replace(".blob.", ".dfs.", 1)
    suffix = parts.get("endpointsuffix")
    return f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.dfs.{suffix}" if suffix else None

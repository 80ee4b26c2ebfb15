"""Names of storage options: each store's own, and those of other tools.

A store's factory has its table as `storage_options`. Python, Spark, the command line and the documentation all
use it: a name is accepted everywhere, or refused with the name to write.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from committer.errors import ConfigurationError
from committer.options.references import FORMS, is_reference, resolved
from committer.options.values import SPARK_HADOOP, shown_name

_HOSTS: Final = ("dfs", "blob")
_FALSE: Final = frozenset({"false", "0", "no", "off", "none", ""})


@dataclass(frozen=True, slots=True)
class StorageOption:
    """Storage option of a store.

    Attributes:
        secret: Whether its value must show nowhere: Spark and the command line take references only.
        instance: Whether it takes an object, which only Python can give.
        others: Names in other tools.
        hadoop: Hadoop's keys for it.
        goes_with: Secret option that it belongs to: without it, it means nothing and conflicts with other
            credentials.
    """

    name: str
    meaning: str
    secret: bool = False
    instance: bool = False
    others: tuple[str, ...] = ()
    hadoop: tuple[str, ...] = ()
    goes_with: str = ""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """Options of a store, and their names in other tools.

    Attributes:
        store: The store's name in errors.
        advice: Other tools' names without an option here, with what to do instead.
        switches: The same for names that may be given switched off, which has no effect.
        read_apart: Other tools' names that the store's own reader interprets, with the option that the value
            always decides; empty if that depends on the value.
        hadoop_prefix: Prefix of Hadoop's keys for such a store.
        hadoop_only: Hadoop's keys that give no option themselves, but affect others.
        hadoop_access: Those of them that choose among Hadoop's ways to authenticate.
        hadoop_found: Classes in those keys for which the store needs no option.
        hadoop_scope: Prefix of Hadoop's keys for one bucket; empty if such keys end in their account.
        hadoop_families: Prefixes of keys that the store takes as they are.
    """

    store: str
    options: tuple[StorageOption, ...]
    advice: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    read_apart: Mapping[str, str] = field(default_factory=dict)
    hadoop_prefix: str = ""
    hadoop_only: tuple[str, ...] = ()
    hadoop_access: frozenset[str] = frozenset()
    hadoop_found: tuple[str, ...] = ()
    hadoop_scope: str = ""
    hadoop_families: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The store's own names."""
        return tuple(option.name for option in self.options)

    def find(self, key: str) -> StorageOption | None:
        """Returns the option of a name in any tool and case; None if the store's own reader must interpret its value.

        Raises:
            ConfigurationError: The name is unknown.
        """
        folded = _folded(key)
        if self.is_hadoop(key):
            base = self.hadoop_base(folded)
            if base is None:
                raise self._unknown(key, self.hadoop_keys)
            return next((option for option in self.options if base in option.hadoop), None)
        for option in self.options:
            if folded == option.name or folded in option.others:
                return option
        if folded in self.switches or folded in self.read_apart:
            return None
        if folded in self.advice:
            raise refused(f"the option {key} is not one of {self.store}", self.advice[folded])
        raise self._unknown(key, (*self.names, *(name for option in self.options for name in option.others)))

    def decided_by(self, key: str) -> StorageOption | None:
        """Returns the option that a name decides, even as a switch; None if that depends on its value."""
        decided = self.read_apart.get(_folded(key), "")
        return self.find(decided or key)

    def named(self, given: Mapping[str, object]) -> dict[str, object]:
        """Returns options by the store's own names, with references to non-secrets resolved; None counts as not given.

        The store translates Hadoop's keys before. `ConfigurationError` is raised for an unknown name, two names
        of one option, and a reference that leads nowhere.
        """
        found: dict[str, object] = {}
        spelled: dict[str, str] = {}
        for key, value in given.items():
            option = self.find(key)
            if value is None:
                continue
            if option is None:
                # A switch: switched off it has no effect.
                if str(value).strip().lower() not in _FALSE:
                    advice = self.switches[_folded(key)]
                    raise refused(f"the option {key} asks for what {self.store} cannot do here", advice)
                continue
            name = option.name
            if name in spelled:
                raise refused(f"the options {spelled[name]} and {key} are two names of one", f"give {name} alone")
            spelled[name] = key
            plain = isinstance(value, str) and not (option.secret or option.instance)
            found[name] = resolved(str(value), key) if plain else value
        return found

    def texts(self, given: Mapping[str, object], **of_path: str) -> dict[str, Any]:
        """Returns options as `named`, without those of the path, which must equal its own; others must be texts.

        An option that takes an object stays as it is.
        """
        found = self.named(given)
        for option in self.options:
            value = found.get(option.name)
            if option.name in found and not option.instance and not (isinstance(value, str) and value):
                raise no_text(option.name)
        for name, own in of_path.items():
            if found.pop(name, own) != own:
                raise refused(
                    f"the option {name} is not the path's, {own}", "leave it out: the path says it; or correct the path"
                )
        return found

    def take(self, given: dict[str, object], name: str) -> Any:
        """Takes an option out of `given`, however its name is spelled; None if it is not there. Refuses two."""
        keys = [key for key in given if _folded(key) == name]
        found = {key: value for key in keys if (value := given.pop(key)) is not None}
        if len(found) > 1:
            raise exclusive(*found)
        return next(iter(found.values()), None)

    def spelled(self, given: Mapping[str, object]) -> dict[str, str]:
        """Returns the keys of given options by the options' names, without Hadoop's keys; None counts as not given."""
        own = [key for key, value in given.items() if value is not None and not self.is_hadoop(key)]
        return {option.name: key for key in own if (option := self.find(key)) is not None}

    def with_hadoop(self, given: Mapping[str, object], translated: Mapping[str, object]) -> dict[str, object]:
        """Replaces Hadoop's keys among options by this library's, with translated values; those of None are left out.

        Raises:
            ConfigurationError: An option is given under Hadoop's key and another name.
        """
        spelled = self.spelled(given)
        own = {key: value for key, value in given.items() if not self.is_hadoop(key)}
        for key, value in translated.items():
            option = self.find(key)
            if option is None or value is None:
                continue
            if option.name in spelled:
                raise exclusive(spelled[option.name], key)
            own[option.name] = value
        return own

    def is_hadoop(self, key: str) -> bool:
        """Returns True if Hadoop has the key for such a store."""
        return bool(self.hadoop_prefix) and _folded(key).startswith(self.hadoop_prefix)

    @property
    def hadoop_keys(self) -> tuple[str, ...]:
        """Hadoop's known keys, without those of one bucket or account."""
        return (*(key for option in self.options for key in option.hadoop), *self.hadoop_only)

    def hadoop_base(self, key: str) -> str | None:
        """Returns Hadoop's key without its bucket or account; None if it is unknown."""
        for base in sorted(self.hadoop_keys, key=len, reverse=True):
            if key == base or (not self.hadoop_scope and key.startswith(f"{base}.")):
                return base
            tail = base.removeprefix(self.hadoop_prefix)
            if self.hadoop_scope and key.startswith(self.hadoop_scope) and key.endswith(f".{tail}"):
                return base
        return None

    def of_hadoop(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """Returns the known keys of a Hadoop configuration for such a store, as storage options."""
        return {
            key: value
            for key, value in configuration.items()
            if self.is_hadoop(key) and self.hadoop_base(_folded(key)) is not None
        }

    def unknown_of_hadoop(self, configuration: Mapping[str, str], authority: str) -> list[str]:
        """Lists a Hadoop configuration's unknown keys for such a store and a path's authority, with near known keys."""
        account = authority.lower().rpartition("@")[2].partition(".")[0]
        unknown: list[str] = []
        for key in configuration:
            folded = _folded(key)
            elsewhere = any(f".{kind}." in folded and f".{account}.{kind}." not in folded for kind in _HOSTS)
            if self.hadoop_scope and folded.startswith(self.hadoop_scope):
                elsewhere = not folded.startswith(f"{self.hadoop_scope}{authority.lower()}.")
            # Which class serves a scheme concerns only Hadoop.
            if elsewhere or folded.endswith(".impl") or not self.is_hadoop(key) or self.hadoop_base(folded) is not None:
                continue
            close = difflib.get_close_matches(folded, self.hadoop_keys, n=1, cutoff=0.9)
            unknown.append(f"{key} (did you mean {close[0]}?)" if close else key)
        return unknown

    def is_for(self, key: str, authority: str) -> bool:
        """Returns True if a Hadoop key is for a path's authority or for all."""
        folded = _folded(key)
        base = self.hadoop_base(folded)
        if base is None or folded == base:
            return base is not None
        if self.hadoop_scope:
            return folded == f"{self.hadoop_scope}{authority.lower()}.{base.removeprefix(self.hadoop_prefix)}"
        container, _, host = authority.lower().rpartition("@")
        account = host.partition(".")[0]
        scope = folded.removeprefix(f"{base}.")
        # The host after the account tells it from a container of that name in another account.
        return any(scope.startswith(f"{of}.{kind}.") for of in (account, f"{container}.{account}") for kind in _HOSTS)

    def _unknown(self, key: str, known: Iterable[str]) -> ConfigurationError:
        spellings = {name: self._own(name) for name in known}
        close = difflib.get_close_matches(_folded(key), spellings, n=1)
        listed = f"the options are {', '.join(self.names)}"
        if self.is_hadoop(key):
            listed = f"understood are {', '.join(self.hadoop_keys)}"
        hint = f"did you mean {spellings[close[0]]!r}? " if close else ""
        return refused(f"the store of {self.store} knows no option {shown_name(key)}", f"{hint}{listed}")

    def _own(self, name: str) -> str:
        return next((option.name for option in self.options if name in option.others), name)


CHOICES: Final = "give config=CommitterConfig(io_concurrency=..., io_rate=...): those are choices of the commit"
"""Advice for other tools' names of retries, timeouts and requests in flight."""


def by_name(texts: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Converts texts with the names that each is for to a text by name."""
    return {name: text for text, names in texts.items() for name in names}


def _folded(key: str) -> str:
    return key.lower().removeprefix(SPARK_HADOOP)


def check_text(table: OptionTable | None, key: str, value: str, *, shown: str, why: str) -> None:
    """Refuses a value that others could read, on a command line or in a Spark plan; no error repeats it.

    Args:
        table: The store's options; a store without a table takes references only.
        shown: The option as its user spelled it.
        why: Who can read the value, a clause.
    """
    option = table.find(key) if table is not None else None
    if option is not None and option.instance:
        raise refused(f"{shown} takes an object of a program", "leave it out, or give another option that lets you in")
    if is_reference(value) or (table is not None and not (option is not None and option.secret)):
        return
    raise refused(f"{shown} must say where its value is found, and not be the value: {why}", f"{shown}={FORMS}")


def exclusive(*options: str) -> ConfigurationError:
    """Builds the error for options that exclude one another."""
    return refused(f"the options {' and '.join(options)} exclude one another", "give one of them alone")


def no_text(option: str) -> ConfigurationError:
    """Builds the error for an option that is empty or not a text."""
    return refused(f"the option {option} is no text, or empty", f"give {option} as a str, or leave it out")


def refused(message: str, next_step: str = "") -> ConfigurationError:
    """Builds the error for an option, or for how options go together."""
    return ConfigurationError(message, operation="open_store", next_step=next_step)

"""Names of storage options: a store's own, and what users of other tools call them.

A store shows its table as the attribute ``storage_options`` of its factory. Python, Spark, the command line and the
documentation go by it, so that one spelling holds everywhere and no name is ignored: it is understood, or refused with
the one to write.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from committer.errors import ConfigurationError
from committer.options.references import FORMS, is_reference, resolved
from committer.options.values import SPARK_HADOOP, shown_name

_HOSTS: Final = ("dfs", "blob")
_FALSE: Final = frozenset({"false", "0", "no", "off", "none", ""})


@dataclass(frozen=True, slots=True)
class StorageOption:
    """One option of a store.

    Attributes:
        name: Its one name.
        meaning: What it is, for documentation.
        secret: Whether its value must show nowhere: Spark and the command line take references only.
        instance: Whether it takes an object of a program, which only Python can give.
        others: What other tools call it.
        hadoop: Hadoop's keys for it.
        goes_with: The secret without which it says nothing, and is at odds with other credentials.
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
    """The options of a store, and other tools' names.

    Attributes:
        store: What the store is called in errors.
        options: Its options.
        advice: Names of other tools that nothing here has: what to do instead.
        switches: Names of other tools that may be given switched off, which asks for nothing; on, what to do instead.
        read_apart: Names of other tools that the store's own reader takes apart, each with the option that its value
            always decides; empty where that depends on the value.
        hadoop_prefix: What Hadoop's keys for such a store begin with; empty without any.
        hadoop_only: Hadoop's keys that give no option by themselves, but bear on others.
        hadoop_access: Of these, the ones that choose among Hadoop's ways to authenticate.
        hadoop_found: Classes that those keys may name, for what the store finds by itself where nothing is given.
        hadoop_scope: What Hadoop's keys for one bucket begin with; empty where they end in the account they are for.
        hadoop_families: What keys begin with that the store takes as they are.
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
        """The option that a name stands for; None where the store's own reader has to see what it asks for.

        Args:
            key: Any tool's name for it, in any case: that of Hadoop's keys counts no more than that of the others.

        Raises:
            ConfigurationError: Nothing goes by this name.
        """
        folded = key.lower().removeprefix(SPARK_HADOOP)
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
            raise _refused(f"the option {key} is not one of {self.store}", self.advice[folded])
        raise self._unknown(key, (*self.names, *(name for option in self.options for name in option.others)))

    def decided_by(self, key: str) -> StorageOption | None:
        """The option whose value a name decides, if only by a switch; None where that depends on its value.

        Raises:
            ConfigurationError: Nothing goes by this name.
        """
        decided = self.read_apart.get(key.lower().removeprefix(SPARK_HADOOP), "")
        return self.find(decided or key)

    def named(self, given: Mapping[str, object]) -> dict[str, object]:
        """Options by the store's own names, references to what is no secret resolved; None counts as not given.

        Hadoop's keys are the store's to read before.

        Raises:
            ConfigurationError: A name is unknown, two give one option, or a reference leads nowhere.
        """
        found: dict[str, object] = {}
        spelled: dict[str, str] = {}
        for key, value in given.items():
            option = self.find(key)
            if value is None:
                continue
            if option is None:
                self._check_switch(key, value)
                continue
            name = option.name
            if name in spelled:
                raise _refused(f"the options {spelled[name]} and {key} are two names of one", f"give {name} alone")
            spelled[name] = key
            plain = isinstance(value, str) and not (option.secret or option.instance)
            found[name] = resolved(str(value), key) if plain else value
        return found

    def is_hadoop(self, key: str) -> bool:
        """Whether a key is of Hadoop's family for such a store."""
        return bool(self.hadoop_prefix) and key.lower().removeprefix(SPARK_HADOOP).startswith(self.hadoop_prefix)

    @property
    def hadoop_keys(self) -> tuple[str, ...]:
        """Hadoop's keys that are understood, those of one bucket or account left out."""
        return (*(key for option in self.options for key in option.hadoop), *self.hadoop_only)

    def hadoop_base(self, key: str) -> str | None:
        """Hadoop's key without the bucket or account that it is for; None where it is not known."""
        for base in sorted(self.hadoop_keys, key=len, reverse=True):
            if key == base or (not self.hadoop_scope and key.startswith(f"{base}.")):
                return base
            tail = base.removeprefix(self.hadoop_prefix)
            if self.hadoop_scope and key.startswith(self.hadoop_scope) and key.endswith(f".{tail}"):
                return base
        return None

    def of_hadoop(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """What a Hadoop configuration says of such a store, as storage options; all other keys are left out."""
        return {
            key: value
            for key, value in configuration.items()
            if self.is_hadoop(key) and self.hadoop_base(key.removeprefix(SPARK_HADOOP).lower()) is not None
        }

    def unknown_of_hadoop(self, configuration: Mapping[str, str], authority: str) -> list[str]:
        """The keys of a Hadoop configuration for such a store that are not understood, for the place that a path's
        authority names or for all: each with the one that was meant, where that is near.
        """
        account = authority.lower().rpartition("@")[2].partition(".")[0]
        unknown: list[str] = []
        for key in configuration:
            folded = key.lower().removeprefix(SPARK_HADOOP)
            elsewhere = any(f".{kind}." in folded and f".{account}.{kind}." not in folded for kind in _HOSTS)
            if self.hadoop_scope and folded.startswith(self.hadoop_scope):
                elsewhere = not folded.startswith(f"{self.hadoop_scope}{authority.lower()}.")
            # Which class of Hadoop's serves the scheme is none of this store's business.
            if elsewhere or folded.endswith(".impl") or not self.is_hadoop(key) or self.hadoop_base(folded) is not None:
                continue
            close = difflib.get_close_matches(folded, self.hadoop_keys, n=1, cutoff=0.9)
            unknown.append(f"{key} (did you mean {close[0]}?)" if close else key)
        return unknown

    def is_for(self, key: str, authority: str) -> bool:
        """Whether a key of Hadoop's is for the place that a path's authority names, or for all."""
        folded = key.lower().removeprefix(SPARK_HADOOP)
        base = self.hadoop_base(folded)
        if base is None or folded == base:
            return base is not None
        if self.hadoop_scope:
            return folded == f"{self.hadoop_scope}{authority.lower()}.{base.removeprefix(self.hadoop_prefix)}"
        container, _, host = authority.lower().rpartition("@")
        account = host.partition(".")[0]
        scope = folded.removeprefix(f"{base}.")
        # What follows the account tells it from a container of that name in another account.
        return any(scope.startswith(f"{of}.{kind}.") for of in (account, f"{container}.{account}") for kind in _HOSTS)

    def _check_switch(self, key: str, value: object) -> None:
        if str(value).strip().lower() not in _FALSE:
            advice = self.switches[key.lower()]
            raise _refused(f"the option {key} asks for what {self.store} cannot do here", advice)

    def _unknown(self, key: str, known: Iterable[str]) -> ConfigurationError:
        spellings = {name: self._own(name) for name in known}
        close = difflib.get_close_matches(key.lower().removeprefix(SPARK_HADOOP), spellings, n=1)
        listed = f"the options are {', '.join(self.names)}"
        if self.is_hadoop(key):
            listed = f"understood are {', '.join(self.hadoop_keys)}"
        hint = f"did you mean {spellings[close[0]]!r}? " if close else ""
        return _refused(f"the store of {self.store} knows no option {shown_name(key)}", f"{hint}{listed}")

    def _own(self, name: str) -> str:
        return next((option.name for option in self.options if name in option.others), name)


def check_text(table: OptionTable | None, key: str, value: str, *, shown: str, why: str) -> None:
    """Refuses a value that must not stand where others can read it: on a command line, in a Spark plan.

    Args:
        table: The store's options; None for a store without a table, which takes references only.
        key: The option.
        value: Its value, which no error repeats.
        shown: The option as its user spelled it.
        why: Who can read it, a clause.

    Raises:
        ConfigurationError: It is a secret as text, the option takes an object, or there is no such option.
    """
    option = table.find(key) if table is not None else None
    if option is not None and option.instance:
        raise _refused(f"{shown} takes an object of a program", "leave it out, or give another option that lets you in")
    if is_reference(value) or (table is not None and not (option is not None and option.secret)):
        return
    raise _refused(f"{shown} must say where its value is found, and not be the value: {why}", f"{shown}={FORMS}")


def markdown_table(table: OptionTable) -> str:
    """The options of a store as Markdown, as its page of the documentation shows them."""
    rows = ["| option | what it is | other tools' names | Hadoop's key |", "|---|---|---|---|"]
    for option in table.options:
        others, hadoop = (", ".join(f"`{name}`" for name in names) for names in (option.others, option.hadoop))
        kind = " (secret)" if option.secret else " (Python only)" if option.instance else ""
        rows.append(f"| `{option.name}`{kind} | {option.meaning} | {others} | {hadoop} |")
    return "\n".join(rows)


def exclusive(*options: str) -> ConfigurationError:
    """The error of options of which one alone can be given."""
    return _refused(f"the options {' and '.join(options)} exclude one another", "give one of them alone")


def not_of_the_path(option: str, own: str) -> ConfigurationError:
    """The error of an option that names another place than the path does, whose own is `own`."""
    return _refused(
        f"the option {option} is not the path's, {own}", "leave it out: the path says it; or correct the path"
    )


def no_text(option: str) -> ConfigurationError:
    """The error of an option that is no text, or an empty one."""
    return _refused(f"the option {option} is no text, or empty", f"give {option} as a str, or leave it out")


def _refused(message: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(message, operation="open_store", next_step=next_step)

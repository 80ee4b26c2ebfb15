"""Four kinds of store, and the effect of one call on the names that a store holds.

A store is a dictionary from names to values. Names that begin with "!" are the model's notes of what happened; no call
of a process reads them. Every call takes effect in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Store = dict[str, Any]
Call = tuple[Any, ...]
Answered = tuple[Store, Any]
READS = frozenset({"read", "look", "jobs", "entries", "files", "names"})
REPEATED = frozenset({"sure", "done"})  # sent again until answered; "done": whatever the answer


class Kind:
    """Abilities of a kind of store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rename = name in {"directories", "adls"}  # a directory is renamed in one step
        self.strict = name == "directories"  # a write into a directory that is gone fails
        self.conditions = name in {"adls", "objects"}  # replace and delete on condition
        self.unique_names = name == "oss"  # file names carry the job's nonce


def directory_of(name: str) -> str | None:
    """Returns the job's directory that holds a name ("J~S1/decision" -> "J~S1/"), or None."""
    first, slash, rest = name.partition("/")
    return first + "/" if slash and rest and "~" in first and first != "C" else None


def is_live(store: Store, directory: str) -> bool:
    """Whether a job can decide, publish or write `_SUCCESS`."""
    return directory + "setup" in store and store.get(directory + "opened") == "open" and "." not in directory


def lacks_parent(kind: Kind, store: Store, name: str) -> bool:
    """Whether a write fails because its directory is gone."""
    directory = directory_of(name)
    if directory is None:
        return False
    rest = name[len(directory) :]
    if rest.startswith("old") and kind.rename:
        return directory + "superseded" not in store
    if rest.startswith("undone") and kind.rename:
        return directory + "work" not in store
    if not kind.strict:
        return False
    if directory + "." not in store:
        return True
    if rest.startswith("succ"):
        return directory + "work" not in store
    return rest.startswith("up") and directory + "tasks" not in store


def noted(store: Store, new: Store, name: str, value: Any) -> None:
    """Notes a decision or outcome that was created while the job was live."""
    directory = directory_of(name)
    if directory is None or not is_live(store, directory):
        return
    what = name[len(directory) :]
    if what in {"decision", "outcome"}:
        note = f"!{what} {directory[:-1].split('~')[1]}"
        if note in store and store[note] != value:
            new["!twice"] = name
        new[note] = value
    if what == "decision" and value[0] == "commit":
        own = {target for _, target, _ in value[3]}
        below = tuple("D/" + part for part in value[4])
        replaced = {each for each in store.items() if each[0].startswith(below) and each[0] != "D/_SUCCESS"}
        if any(each not in value[2] and each[0] not in own for each in replaced):
            new["!missed"] = name


def apply(kind: Kind, store: Store, call: Call) -> Answered:
    """Returns the store after a call, and the answer. The store given is not changed."""
    verb = call[0]
    if verb in READS:
        return store, _answer(store, call)
    if verb in REPEATED:
        new, answer = apply(kind, store, call[1:])
        return new, answer if verb == "sure" else "ok"
    return _CHANGES[verb](kind, store, dict(store), *call[1:])


def _answer(store: Store, call: Call) -> Any:
    verb, where = call[0], call[1]
    if verb == "read":
        return store.get(where)
    if verb == "look":  # the records of a job's directory, by one listing
        names = {name[len(where) :] for name in store if name.startswith(where)}
        records = {"setup", "opened", "decision", "outcome"}
        return tuple(
            sorted({n if n in records else n[:4] for n in names if n in records or n[:4] in {"inte", "kept"}})
        ) + (("any",) if names else ())
    if verb == "jobs":  # the nonces of an id, and names of directories that are being deleted
        return tuple(sorted({n.split("/")[0].split("~")[1] for n in store if n.startswith(where + "~")}))
    if verb == "entries":
        return tuple(sorted((n, v) for n, v in store.items() if n.startswith("C/" + where)))
    if verb == "files":  # files of the destination below any of the directories
        below = tuple("D/" + part for part in where)
        return tuple(sorted((n, v) for n, v in store.items() if n.startswith(below) and n != "D/_SUCCESS"))
    return tuple(sorted(n for n in store if n.startswith(where)))


def _mark(kind: Kind, store: Store, new: Store, directory: str) -> Answered:  # mkdir, or the put of setup
    if kind.strict:
        if directory + "." in store:
            return store, "exists"
        new[directory + "."] = 1
    else:
        new[directory + "setup"] = 1
    return new, "ok"


SUBDIRECTORIES = ("work", "superseded", "tasks")


def _make(kind: Kind, store: Store, new: Store, directory: str) -> Answered:  # a directory with all that is in it
    new.update({directory + each: 1 for each in (*SUBDIRECTORIES, "setup", *(["."] if kind.strict else []))})
    return new, "ok"


def _fill(
    kind: Kind, store: Store, new: Store, directory: str, files: tuple[tuple[str, Any], ...], made: str
) -> Answered:  # what the tasks write; `made`: the subdirectories too, or also the directory itself (planted faults)
    if made == "parents":
        new[directory + "."] = 1
    if kind.strict and directory + "." not in new:
        return store, "no directory"
    if made and kind.rename:
        new.update({directory + each: 1 for each in SUBDIRECTORIES})
    if kind.strict and directory + "tasks" not in new:
        return store, "no directory"
    new.update({directory + name: value for name, value in files})
    return new, "ok"


def _put(kind: Kind, store: Store, new: Store, name: str, value: Any) -> Answered:
    if lacks_parent(kind, store, name):
        return store, "no directory"
    new[name] = value
    directory = directory_of(name)
    if directory and kind.rename and name[len(directory) :].startswith("succ"):
        new[directory + "work"] = 1  # on ADLS a put makes its parents
    noted(store, new, name, value)
    return new, "ok"


def _create(kind: Kind, store: Store, new: Store, name: str, value: Any) -> Answered:
    if lacks_parent(kind, store, name):
        return store, "no directory"
    if name in store:
        return store, "exists"
    return _put(kind, store, new, name, value)


def _delete(kind: Kind, store: Store, new: Store, names: tuple[str, ...]) -> Answered:
    for name in names:
        new.pop(name, None)
    return new, "ok"


def _delete_if(kind: Kind, store: Store, new: Store, name: str, value: Any) -> Answered:
    if store.get(name) != value:
        return store, "other"
    del new[name]
    return new, "ok"


def _put_if(kind: Kind, store: Store, new: Store, name: str, value: Any, before: Any) -> Answered:
    if store.get(name) != before:
        return store, "other"
    new[name] = value
    return new, "ok"


def _move(
    kind: Kind, store: Store, new: Store, source: str, target: str, expected: Any = None, replaced: Any = None
) -> Answered:
    """Moves a file. `expected`: identity that the source must have. `replaced`: what may be replaced at the target."""
    if not kind.rename and store.get(target) not in {None, replaced}:
        return store, "exists"  # an object store may look at the precondition first
    if source not in store:
        return store, "no source"
    if expected is not None and store[source] != expected:
        return store, "other"
    if lacks_parent(kind, store, target):
        return store, "no directory"
    if store.get(target) not in {None, replaced}:
        return store, "exists"
    new[target] = new.pop(source)
    return new, "ok"


def _publish_marker(
    kind: Kind, store: Store, new: Store, source: str, expected: Any
) -> Answered:  # a rename that replaces; ADLS states the etag of its source
    if source not in store:
        return store, "no source"
    if expected is not None and store[source] != expected:
        return store, "other"
    value = new.pop(source)
    new["D/_SUCCESS"] = value[0] if isinstance(value, tuple) else value
    return new, "ok"


def _rename_directory(kind: Kind, store: Store, new: Store, source: str, target: str) -> Answered:
    names = [name for name in store if name.startswith(source)]
    if not names:
        return store, "no source"
    if any(name.startswith(target) for name in store):
        return store, "exists"
    for name in names:
        new[target + name[len(source) :]] = new.pop(name)
    return new, "ok"


def _delete_tree(kind: Kind, store: Store, new: Store, directory: str, but: tuple[str, ...] = ()) -> Answered:
    names = [name for name in store if name.startswith(directory) and name[len(directory) :] not in but]
    for name in names:
        del new[name]
    return new, "ok"


def _fence(
    kind: Kind, store: Store, new: Store, directory: str, what: str, prefix: str
) -> Answered:  # rename of a subdirectory; abort of the pending uploads
    if kind.rename:
        if directory + what not in store:
            return store, "no source"
        del new[directory + what]
        for name in [n for n in store if n.startswith(directory + prefix)]:
            new[directory + "fenced-" + name[len(directory) :]] = new.pop(name)
    else:
        for name in [n for n in store if n.startswith(directory + prefix)]:
            del new[name]
    return new, "ok"


def _fill_again(
    kind: Kind, store: Store, new: Store, directory: str, files: tuple[tuple[str, Any], ...], made: str
) -> Answered:  # delayed creates of the tasks' files: exclusive, and with another identity where stores have one
    other = "" if kind.strict else " again"
    filled, answer = _fill(kind, store, new, directory, (), made)
    if answer == "ok":
        for name, value in files:
            filled.setdefault(directory + name, value + other)
    return filled, answer


_CHANGES: dict[str, Callable[..., Answered]] = {
    "mark": _mark, "make": _make, "fill": _fill, "fill again": _fill_again, "put": _put, "create": _create, "delete": _delete, "delete_if": _delete_if,
    "put_if": _put_if, "move": _move, "publish marker": _publish_marker, "rename directory": _rename_directory,
    "delete tree": _delete_tree, "fence": _fence,
}  # fmt: skip

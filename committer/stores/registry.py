"""Registry that finds the store of a path by its URI scheme.

An entry point of the group ``committer.stores`` adds a store: its name is the scheme, its object a factory or a
class with a classmethod ``open_for``. A program can also call `register_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeAlias, cast

from committer.errors import ConfigurationError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.options.references import is_in_file
from committer.options.storage import OptionTable, refused
from committer.paths import StorePath
from committer.stores.base import Store

GROUP: Final = "committer.stores"

StoreFactory: TypeAlias = Callable[[StorePath, Mapping[str, object]], Store]

# Found without package metadata, too, as in a checkout on the import path.
_BUILT_IN: Final = {
    "abfs": EntryPoint("abfs", "committer.stores.adls:AdlsStore", GROUP),
    "abfss": EntryPoint("abfss", "committer.stores.adls:AdlsStore", GROUP),
    "az": EntryPoint("az", "committer.stores.azure_blob:AzureBlobStore", GROUP),
    "file": EntryPoint("file", "committer.stores.local:LocalStore", GROUP),
    "gs": EntryPoint("gs", "committer.stores.gcs:GcsStore", GROUP),
    "hdfs": EntryPoint("hdfs", "committer.stores.hdfs:HdfsStore", GROUP),
    "memory": EntryPoint("memory", "committer.stores.memory:MemoryStore", GROUP),
    "oss": EntryPoint("oss", "committer.stores.s3:S3Store", GROUP),
    "s3": EntryPoint("s3", "committer.stores.s3:S3Store", GROUP),
    "s3a": EntryPoint("s3a", "committer.stores.s3:S3Store", GROUP),
    "wasb": EntryPoint("wasb", "committer.stores.azure_blob:AzureBlobStore", GROUP),
    "wasbs": EntryPoint("wasbs", "committer.stores.azure_blob:AzureBlobStore", GROUP),
}
# Schemes of other tools for stores that have another scheme here.
_OTHER_NAMES: Final = {
    **dict.fromkeys(("s3n",), "s3a://BUCKET/PATH"),
    **dict.fromkeys(("gcs",), "gs://BUCKET/PATH"),
    **dict.fromkeys(
        ("http", "https"),
        "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    ),
    "dbfs": "the path that it is mounted from, s3://… or abfss://…: dbutils.fs.mounts() shows it",
    "azure": "az://CONTAINER/PATH, or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH with hierarchical namespace",
}
_registered: dict[str, StoreFactory] = {}
_loaded: dict[str, StoreFactory] = {}


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Registers a factory for a URI scheme in this process, before any entry point.

    It is called for every job and task with the path and the storage options without ``store``; it must not block,
    and must refuse unknown options (`committer.stores.helpers.check_options`).
    """
    _registered[scheme.lower()] = factory


def unregister_store(scheme: str) -> None:
    """Removes a factory of `register_store`."""
    _registered.pop(scheme.lower(), None)


def open_store(path: StorePath, storage_options: Mapping[str, object] | None = None) -> Store:
    """Opens the store of any path in it. No store call.

    The first use of a scheme that is neither built in nor registered reads the metadata of installed packages, which
    blocks for milliseconds: use `find_store` inside an event loop. In `storage_options` ``store`` is a `Store` to
    use as it is, and ``http_session`` an aiohttp session, which every store accepts.

    Raises:
        UnsupportedError: No store is known for the scheme.
        ConfigurationError: An option is unknown or invalid, or ``store`` is for another scheme.
    """
    options = _checked(storage_options)
    if "store" in options:
        return _live_store(path, options)
    return _factory(path.scheme)(path, options)


async def find_store(path: StorePath, storage_options: Mapping[str, object] | None = None) -> Store:
    """Opens the store of a path as `open_store` does, without blocking the event loop."""
    storage_options = _checked(storage_options)
    if any(map(is_in_file, storage_options.values())):
        # A value in a file that is no secret is read when the store is created, which blocks.
        return await current_runtime().run_blocking(lambda: open_store(path, storage_options))
    if path.scheme not in _registered and path.scheme not in _loaded and "store" not in storage_options:
        await current_runtime().run_blocking(lambda: _factory(path.scheme))
    return open_store(path, storage_options)


def _checked(storage_options: object) -> dict[str, object]:
    if storage_options is None:
        return {}
    if not isinstance(storage_options, Mapping) or not all(isinstance(key, str) for key in storage_options):
        raise refused(
            f"storage_options is a mapping of names to values, not this {type(storage_options).__name__}",
            "give a dict with a str for each key, such as storage_options={'region': 'eu-west-1'}",
        )
    hidden = [key for key, value in storage_options.items() if value is ...]
    if hidden:
        raise refused(
            f"the option {hidden[0]!r} is `...`, which stands for a value that is not shown",
            "put in its place what the job was opened with, or a reference to it: env:NAME, file:PATH",
        )
    return dict(storage_options)


def options_of(scheme: str) -> OptionTable | None:
    """Returns the storage options of a scheme's store; None if it has no table. Blocks and raises as `open_store`."""
    factory = _factory(scheme)
    table = getattr(getattr(factory, "__self__", factory), "storage_options", None)
    return table if isinstance(table, OptionTable) else None


def _live_store(path: StorePath, options: Mapping[str, object]) -> Store:
    store = options["store"]
    if not isinstance(store, Store):
        raise refused(
            f"the option 'store' is no store but a {type(store).__name__}",
            "give a committer.stores.base.Store, or leave it out",
        )
    others = sorted(options.keys() - {"store", "http_session"})
    if others:
        raise refused(
            f"the option 'store' is a store that is open already; {others[0]!r} would have no effect",
            "give the options to the store, or leave store out",
        )
    if store.scheme != path.scheme:
        raise ConfigurationError(
            f"the option 'store' is a store for {store.scheme!r} and cannot hold this",
            operation="open_store",
            path=path,
            next_step="give a store for the path's scheme, or leave it out",
        )
    return store


def _factory(scheme: str) -> StoreFactory:
    factory = _registered.get(scheme) or _loaded.get(scheme)
    if factory is None:
        factory = _loaded[scheme] = _load(scheme)
    return factory


def _load(scheme: str) -> StoreFactory:
    entry = _BUILT_IN.get(scheme) or next(iter(entry_points(group=GROUP, name=scheme)), None)
    if entry is None:
        raise _no_store(scheme)
    try:
        found = entry.load()
    except ImportError as error:
        raise UnsupportedError(
            f"the store for {scheme}: paths cannot be imported: {error}",
            operation="open_store",
            next_step=f"install what {entry.value.partition(':')[0]} imports, or the package that holds it anew",
        ) from error
    return cast("StoreFactory", getattr(found, "open_for", found))


def _no_store(scheme: str) -> UnsupportedError:
    schemes = sorted({*_BUILT_IN, *_registered, *entry_points(group=GROUP).names})
    known = f"there are stores for {', '.join(f'{name}:' for name in schemes)} paths"
    other = _OTHER_NAMES.get(scheme)
    if other:
        message, step = f"there is no store for {scheme}: paths, which go by another name here", f"write {other}"
    else:
        message = f"no store is known for {scheme}: paths"
        step = f"{known}; another comes with a package that has an entry point in {GROUP}, or with register_store"
    return UnsupportedError(message, operation="open_store", next_step=step)

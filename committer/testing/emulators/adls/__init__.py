"""An emulated Azure Data Lake Storage Gen2 account.

from committer.testing.emulators.adls import Settings, serve

async with serve(Settings(rate=1000)) as emulator:
    DataLakeServiceClient(emulator.url, credential=emulator.settings.key)
"""

from __future__ import annotations

from committer.testing.emulators.adls.faults import Fault
from committer.testing.emulators.adls.server import AdlsEmulator, serve
from committer.testing.emulators.adls.settings import DEFAULT_ACCOUNT, DEFAULT_KEY, Settings

__all__ = ["DEFAULT_ACCOUNT", "DEFAULT_KEY", "AdlsEmulator", "Fault", "Settings", "serve"]

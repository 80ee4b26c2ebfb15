"""Reader of Hadoop's XML configuration files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from committer.errors import ConfigurationError


def read_properties(file: Path) -> dict[str, str]:
    """Reads the properties of a Hadoop configuration file; empty if the file does not exist.

    Raises:
        ConfigurationError: The file cannot be read or parsed.
    """
    try:
        root = ET.fromstring(file.read_bytes())  # noqa: S314 - the user's own file
    except FileNotFoundError:
        return {}
    except (OSError, ET.ParseError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}", operation="open_store", next_step="correct it, or its permissions"
        ) from error
    found = {}
    for one in root.iter("property"):
        name, value = one.findtext("name"), one.findtext("value")
        if name and value is not None:
            found[name.strip()] = value.strip()
    return found

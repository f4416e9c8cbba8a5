"""What a user gives to a client, as its drivers want it: addresses, settings, trusted authorities.

Not here: the calls that take it (`client/__init__.py`, `client/table_reader.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from standpipe.client.core.nodes import normalised
from standpipe.client.core.settings import Settings
from standpipe.errors import SetupError


def prepared(
    nodes: str | Iterable[str], settings: Settings, ca: str | Path | None
) -> tuple[tuple[str, ...], Settings, ssl.SSLContext | None]:
    """`ca`: PEM file of the authority to trust; None: the system's.

    Raises ValueError for an invalid address, SetupError for a `ca` that cannot be read.
    """
    addresses = tuple(each.removeprefix("http://") for each in normalised(nodes))
    if any(each.startswith("https://") for each in addresses):
        settings = replace(settings, finds_members=False)
    return addresses, settings, None if ca is None else _trusting(Path(ca))


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(
            f"{ca} holds no certificates: {error}", next_step="give the path of a PEM file"
        ) from error

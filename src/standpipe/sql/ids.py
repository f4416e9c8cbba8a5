"""Ids that are made of names."""

from __future__ import annotations

import re


def sanitised(name: str) -> str:
    """A name as file names, topics and ids may hold it: [A-Z0-9_] only."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())

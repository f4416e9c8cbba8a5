"""Case files as records (their format: the README.md beside them). Nothing here runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatch
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """One case. `data` is the file's own object, numbers as Decimal where they have a point."""

    file: str  # "pull/<name>.json", relative to the folder that was asked for
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def is_pull(self) -> bool:
        """Of the suite that reads rows back over HTTP; the other one looks into topics."""
        return "responses" in self.data

    @property
    def statements(self) -> list[str]:
        return list(self.data["statements"])

    @property
    def properties(self) -> dict[str, str]:
        return {name: _text(value) for name, value in self.data["properties"].items()}

    @property
    def partitions(self) -> dict[str, int]:
        return {topic["name"]: topic["partitions"] for topic in self.data.get("topics", ())}

    @property
    def partitions_usual(self) -> int:
        """Of a topic that the case does not list."""
        return 4 if self.is_pull else 1

    @property
    def refusal(self) -> dict[str, Any] | None:
        """What the last statement must be refused with; None: nothing is refused."""
        return self.data.get("expected_error") or self.data.get("expected_exception")


@dataclass(frozen=True)
class Outcome:
    """`kind` "skipped" names the feature that is missing, and counts as not passed."""

    kind: str  # passed, failed, skipped
    reason: str = ""


def load(folder: Path, only: str, shard: tuple[int, int]) -> Iterator[Case]:
    """Cases below a folder whose id or file matches a glob; every n-th of them from the k-th."""
    number, globs = 0, only.split(",")
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        for data in json.loads(path.read_text(), parse_float=Decimal)["cases"]:
            if not any(fnmatch(data["id"], glob) or fnmatch(name, glob) for glob in globs):
                continue
            if number % shard[1] == shard[0] - 1:
                yield Case(name, data)
            number += 1


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

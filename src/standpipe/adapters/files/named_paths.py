"""A name from a statement or a catalog as a path: one function for every place that needs one.

    folder_below(checkpoints, f"{query_id}-{generation}")

The path is always below the given folder. Statements cannot create names that would lead outside
(`sql.declarations.names`), but the catalog of an older release may have one.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, Self, TypeVar

from standpipe.errors import ServerError

#: of one component, as file systems take it, with room for what programs append
NAME_BYTES_MAX: Final = 200
_COMPONENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class UnsafePath(ServerError):
    """A name of the catalog cannot become a path: it might lead out of the folder it belongs to."""


class NamedPath(Protocol):
    """What `folder_below` needs of a path: `pathlib.Path` has it."""

    def joinpath(self, *names: str) -> Self: ...
    def resolve(self) -> Self: ...
    def is_relative_to(self, other: Self, /) -> bool: ...


_P = TypeVar("_P", bound=NamedPath)


def folder_below(root: _P, *names: str) -> _P:
    """The path of these names, one component each, below `root`. Nothing is made.

    A component has letters, digits, `.`, `_` and `-`, begins with none of `.` and `-`, and has at
    most NAME_BYTES_MAX bytes. Raises UnsafePath, also if a symbolic link leads out of `root`.
    """
    for name in names:
        if not _COMPONENT.fullmatch(name) or len(name) > NAME_BYTES_MAX:
            raise UnsafePath(
                f"{_shown(name)} cannot be the name of a folder: that has letters of ASCII, digits,"
                f" '.', '_' and '-', begins with none of '.' and '-', and has {NAME_BYTES_MAX}"
                " characters at most. Drop what has this name, and create it again under another"
                " one."
            )
    path = root.joinpath(*names)
    if not path.resolve().is_relative_to(root.resolve()):
        raise UnsafePath(
            f"the folder {'/'.join(names)} is a symbolic link that leads out of its directory."
            " Remove the link, or put the folder there."
        )
    return path


def _shown(name: str) -> str:
    text = ascii(name)
    return text if len(text) <= 100 else f"{text[:100]}… ({len(name)} characters)"

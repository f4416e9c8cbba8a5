"""What a schema registry has answered to a query: kept beside its checkpoint, for replays.

A batch that is replayed must have the rows that it had. But a registry may answer otherwise later:
what it did not know is registered meanwhile, or another of its nodes does not know it yet. So a
schema is kept from its first use on, as long as there are not too many. Of a batch with records
under unknown schemas, or with known ones that are not kept, it is noted which were known. Both are
written before the batch runs.

    DIRECTORY/schemas/VIEW/ID.json           a schema
    DIRECTORY/schemas/VIEW/batches/END.json  the ids that were known; END: where the batch ends
    DIRECTORY/schemas/VIEW/unknown/END.json  those that were not, of a batch that asked for too long

A take-over copies them with the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from standpipe.pipeline.io.checkpoint_path import CheckpointPath, write_whole
from standpipe.sql.schemas.registry import RegisteredSchema

#: schemas of one source; further ones are asked for again after a restart, and each batch that
#: knows one has a note
KEPT_MAX: Final = 1000
#: as many as Spark keeps batches
BATCHES_MAX: Final = 100
_ENDING: Final = ".json"

#: partition -> offset
Offsets = Mapping[int, int]


class KeptAnswers:
    """The answers for one source of one query. All methods raise OSError."""

    def __init__(self, directory: CheckpointPath, view: str) -> None:
        self._place = directory / "schemas" / view
        self._batches, self._unknown = self._place / "batches", self._place / "unknown"

    def schemas(self) -> list[RegisteredSchema]:
        """All that are kept; a file that cannot be read is none."""
        names = [each.removesuffix(_ENDING) for each in _names(self._place)]
        numbers = sorted(int(each) for each in names if each.isdecimal())
        found = (self.schema(each) for each in numbers[:KEPT_MAX])
        return [each for each in found if each is not None]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """One that is kept; None: it is not, or its file cannot be read."""
        try:
            content = (self._place / f"{schema_id}{_ENDING}").read_bytes()
            return msgspec.json.decode(content, type=RegisteredSchema)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def keep(self, schema: RegisteredSchema) -> None:
        """Keep a schema, which never changes."""
        self._place.mkdir(parents=True, exist_ok=True)
        write_whole(self._place / f"{schema.schema_id}{_ENDING}", msgspec.json.encode(schema))

    def known_in(self, starts: Offsets, ends: Offsets) -> list[int] | None:
        """The schemas that were known when this batch ran; None: all of its records' were, and are
        kept, or it has never run."""
        return _noted(self._batches, _name(starts, ends))

    def keep_known(self, starts: Offsets, ends: Offsets, known: Iterable[int]) -> None:
        """Keep which schemas are known in a batch, if a replay would not know it otherwise."""
        _note(self._batches, _name(starts, ends), known)

    def unknown_in(self, starts: Offsets, ends: Offsets) -> list[int]:
        """The schemas that earlier tries of this batch have found to be unknown."""
        return _noted(self._unknown, _name(starts, ends)) or []

    def keep_unknown(self, starts: Offsets, ends: Offsets, unknown: Iterable[int]) -> None:
        """Keep which schemas need not be asked for by the next try of this batch."""
        _note(self._unknown, _name(starts, ends), unknown)


def _noted(folder: CheckpointPath, name: str) -> list[int] | None:
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=list[int])
    except msgspec.DecodeError as error:
        raise OSError(f"{name} of {folder}: {error}") from error


def _note(folder: CheckpointPath, name: str, schema_ids: Iterable[int]) -> None:
    """Of so many batches as are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / name, msgspec.json.encode(sorted(schema_ids)))
    for old in _names(folder)[:-BATCHES_MAX]:
        (folder / old).unlink(missing_ok=True)


def _name(starts: Offsets, ends: Offsets) -> str:
    """Later batches have later names."""
    text = json.dumps([sorted(starts.items()), sorted(ends.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{sum(ends.values()):020}-{digest}{_ENDING}"


def _names(folder: CheckpointPath) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.endswith(_ENDING))
    except FileNotFoundError:
        return []

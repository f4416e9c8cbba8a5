"""What a schema registry has answered to a query: kept beside its checkpoint, for replays.

A batch that is replayed must have the rows that it had. But a registry may answer otherwise later:
what it did not know is registered meanwhile, or another of its nodes does not know it yet. So a
schema is kept from its first use on, and of a batch with records under unknown schemas which of the
schemas were known. Both are written before the batch runs.

    DIRECTORY/schemas/VIEW/ID.json           a schema
    DIRECTORY/schemas/VIEW/batches/END.json  the ids that were known; END: where the batch ends

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

#: schemas of one source; further ones are asked for again after a restart
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
        self._batches = self._place / "batches"

    def schemas(self) -> list[RegisteredSchema]:
        """All that are kept."""
        names = [each for each in _names(self._place) if each.removesuffix(_ENDING).isdecimal()]
        return [
            msgspec.json.decode((self._place / name).read_bytes(), type=RegisteredSchema)
            for name in names[:KEPT_MAX]
        ]

    def keep(self, schema: RegisteredSchema) -> None:
        """Keep a schema, which never changes."""
        self._place.mkdir(parents=True, exist_ok=True)
        write_whole(self._place / f"{schema.schema_id}{_ENDING}", msgspec.json.encode(schema))

    def known_in(self, starts: Offsets, ends: Offsets) -> list[int] | None:
        """The schemas that were known when this batch ran; None: all of its records' were, or it
        has never run."""
        try:
            content = (self._batches / _name(starts, ends)).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content, type=list[int])

    def keep_known(self, starts: Offsets, ends: Offsets, known: Iterable[int]) -> None:
        """Keep which schemas are known in a batch that has records under others."""
        self._batches.mkdir(parents=True, exist_ok=True)
        write_whole(self._batches / _name(starts, ends), msgspec.json.encode(sorted(known)))
        for name in _names(self._batches)[:-BATCHES_MAX]:
            (self._batches / name).unlink(missing_ok=True)


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

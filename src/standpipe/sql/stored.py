"""A source as its query writes it and as replicas keep it."""

from __future__ import annotations

import msgspec

from standpipe.model import Source


def stored(source: Source) -> Source:
    """With its changelog where it has one: CREATE SOURCE TABLE shows a topic of somebody else."""
    if source.changelog is None:
        return source
    return msgspec.structs.replace(
        source,
        topic=source.changelog,
        changelog=None,
        columns=tuple(msgspec.structs.replace(c, header=None) for c in source.columns),
        value_format="JSON",
        wrap_single_value=True,
        timestamp_column=None,
        timestamp_format=None,
    )

"""What other programs read of a source: which topic, in which formats.

Replicas and queries read a table's own topic, in formats that need no schema registry. A table that
is to be in AVRO, and one that replaced another, has its rows in a public topic as well, a copy.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from standpipe.model import Column, Source
from standpipe.sql.declarations.properties import REGISTRY_FORMATS

#: types of an only key column that have an own form in Kafka
_KAFKA_KEYS: Final = frozenset({"INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES"})


def public_form(source: Source) -> Source:
    """The source as other programs read it: of a table with a copy, that topic and its formats."""
    if source.public_topic is None:
        return source
    key_format, value_format = source.public_formats or (source.key_format, source.value_format)
    return replace(
        source,
        topic=source.public_topic,
        public_topic=None,
        key_format=key_format,
        value_format=value_format,
        public_formats=UNSET,
    )


def is_registered(source: Source) -> bool:
    """Whether other programs need a schema registry to read its keys or its values."""
    public = public_form(source)
    return public.key_format in REGISTRY_FORMATS or public.value_format in REGISTRY_FORMATS


def kept_form(source: Source) -> Source:
    """A new stream or table as it is kept. A table that is to be in AVRO gets a topic of its own,
    in formats that need no registry, and a copy in the topic that its statement names."""
    if source.kind == "STREAM" or not is_registered(source):
        return source
    return replace(
        source,
        topic=f"{source.query_id}-changelog",
        public_topic=source.topic,
        key_format=_own_key_format(source.key_format, source.key_columns),
        value_format="JSON" if source.value_format in REGISTRY_FORMATS else source.value_format,
        public_formats=(source.key_format, source.value_format),
    )


def _own_key_format(key_format: str, keys: tuple[Column, ...]) -> str:
    if key_format not in REGISTRY_FORMATS:
        return key_format
    return "KAFKA" if len(keys) == 1 and keys[0].type in _KAFKA_KEYS else "JSON"

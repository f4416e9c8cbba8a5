"""AVRO and JSON_SR in the stories with a registry: schemas of others, and their records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from standpipe.data.encoding.framed_values import avro_row, json_row
from standpipe.sql.schemas.json_columns import DRAFT
from standpipe.sql.schemas.registry import SchemaKind

#: a property's type by its name: Avro's, or "date", with "?" behind it if it may be null
Properties = Mapping[str, str]
_AVRO_TYPES: Final = {"date": {"type": "int", "logicalType": "date"}}
_INT: Final = {"type": "integer", "connect.type": "int32"}
_JSON_TYPES: Final = {
    "string": {"type": "string"},
    "long": {"type": "integer"},
    "int": _INT,
    "date": {**_INT, "title": "org.apache.kafka.connect.data.Date"},
}


@dataclass(frozen=True)
class RegistryFormat:
    """A format. `name`: in WITH; `kind`: in a registry; `text`: the schema of a bare text;
    `schema`: of a record with these properties; `row`: the writer of rows under a schema."""

    name: str
    kind: SchemaKind
    text: str
    schema: Callable[[str, Properties], str]
    row: Callable[..., Callable[[Sequence[Any]], bytes]]


def avro_record(name: str, properties: Properties) -> str:
    """Avro's schema of a record; what may be null has null as its default."""
    fields: list[dict[str, Any]] = []
    for each, of in properties.items():
        name_of_type = of.removesuffix("?")
        plain = _AVRO_TYPES.get(name_of_type, name_of_type)
        if of.endswith("?"):
            fields.append({"name": each, "type": ["null", plain], "default": None})
        else:
            fields.append({"name": each, "type": plain})
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def json_object(name: str, properties: Properties) -> str:
    """The JSON Schema of an object; what may be null is not required either."""
    made: dict[str, Any] = {}
    for each, of in properties.items():
        plain = _JSON_TYPES[of.removesuffix("?")]
        made[each] = {"oneOf": [{"type": "null"}, plain]} if of.endswith("?") else plain
    required = [each for each, of in properties.items() if not of.endswith("?")]
    return json.dumps({"type": "object", "title": name, "properties": made, "required": required})


AVRO: Final = RegistryFormat("AVRO", "AVRO", '"string"', avro_record, avro_row)
JSON_SR: Final = RegistryFormat(
    "JSON_SR", "JSON", json.dumps({"$schema": DRAFT, "type": "string"}), json_object, json_row
)
FORMATS: Final = (AVRO, JSON_SR)

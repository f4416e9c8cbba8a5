"""Values as Confluent's own deserializers read them: a child of a test, in an environment of its
own (../confluent_serdes.py).

python deserialize.py URL AVRO|JSON < lines of {"topic", "field", "data" in base64} > lines of JSON
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def deserializer(url: str, kind: str) -> Callable[[bytes, SerializationContext], Any]:
    # the default asks for what only Confluent's own registry has: which subjects a topic has
    how = {"subject.name.strategy": topic_subject_name_strategy}
    client = SchemaRegistryClient({"url": url})
    if kind == "JSON":
        return JSONDeserializer(None, schema_registry_client=client, conf=how)
    return AvroDeserializer(client, conf=how)


def main(url: str, kind: str) -> None:
    deserialize = deserializer(url, kind)
    for line in sys.stdin:
        asked = json.loads(line)
        field = MessageField.KEY if asked["field"] == "key" else MessageField.VALUE
        data = base64.b64decode(asked["data"])
        found = deserialize(data, SerializationContext(asked["topic"], field))
        print(json.dumps(found, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

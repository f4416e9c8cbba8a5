"""Values in AVRO as Confluent's own deserializer reads them: a child of a test, in an environment
of its own (../confluent_avro.py).

python deserialize.py URL < lines of {"topic", "field", "data" in base64} > lines of JSON
"""

from __future__ import annotations

import base64
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def main(url: str) -> None:
    # the default asks for what only Confluent's own registry has: which subjects a topic has
    how = {"subject.name.strategy": topic_subject_name_strategy}
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": url}), conf=how)
    for line in sys.stdin:
        asked = json.loads(line)
        field = MessageField.KEY if asked["field"] == "key" else MessageField.VALUE
        data = base64.b64decode(asked["data"])
        found = deserialize(data, SerializationContext(asked["topic"], field))
        print(json.dumps(found, default=str), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

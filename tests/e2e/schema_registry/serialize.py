"""Values as Confluent's own serializers write them: a child of a test, in an environment of its own
(../confluent_serdes.py). They register their schemas.

python serialize.py URL AVRO|JSON < lines of {"topic", "field", "schema", "data"} > lines of base64
"""

from __future__ import annotations

import base64
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def main(url: str, kind: str) -> None:
    # the default asks for what only Confluent's own registry has: which subjects a topic has
    how = {"subject.name.strategy": topic_subject_name_strategy}
    client = SchemaRegistryClient({"url": url})
    for line in sys.stdin:
        asked = json.loads(line)
        field = MessageField.KEY if asked["field"] == "key" else MessageField.VALUE
        if kind == "JSON":
            serialize = JSONSerializer(asked["schema"], client, conf=how)
        else:
            serialize = AvroSerializer(client, asked["schema"], conf=how)
        made = serialize(asked["data"], SerializationContext(asked["topic"], field))
        assert made is not None, "there is no null among them"
        print(base64.b64encode(made).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

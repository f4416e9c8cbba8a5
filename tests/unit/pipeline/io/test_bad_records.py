import json

from standpipe.pipeline.io.bad_records import to_log_records


def test_to_log_records() -> None:
    sample = {"topic": "s", "partition": 1, "offset": 5, "reason": "VALUE", "value_base64": "e30="}
    (line,) = to_log_records("Q", [sample])
    said = json.loads(line)
    assert said.pop("at_ms") > 0
    assert said == {"query_id": "Q", **sample}

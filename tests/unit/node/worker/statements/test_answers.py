"""Answers of many statements: in order, and only so many bytes of them."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.errors import BadRequest
from standpipe.node.worker.statements import answers as module
from standpipe.node.worker.statements.answers import Answers


def test_answers_are_kept_in_order_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 times SHOW FUNCTIONS took 18 GB, and the kernel's killer."""
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 30)
    answers = Answers()
    answers.add([{"a": 1}, {"b": 2}])
    answers.add([{"c": "x" * 5}])
    with pytest.raises(BadRequest, match="longer than 30 bytes"):
        answers.add([{"d": 4}])
    assert msgspec.json.encode(answers.encoded) == b'[{"a":1},{"b":2},{"c":"xxxxx"}]'

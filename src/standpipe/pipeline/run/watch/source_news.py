"""Of which topics there are records that nobody was told about. Pure.

Two witnesses report: Kafka, when asked where topics end, and records that have just come. What one
of them has reported is no news from the other.

Not here: asking Kafka, and waking queries (`source_probe.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

#: {topic: {partition: offset}}
Offsets = Mapping[str, Mapping[int, int]]


class SourceNews:
    """What was told of the topics of all queries."""

    def __init__(self) -> None:
        self._told: dict[str, dict[int, int]] = {}

    def ends(self, ends: Offsets) -> set[str]:
        """Those of the topics that have news: they grew, are seen first, have other partitions, or
        were created again (they end below what was told). Other topics are forgotten: they do not
        exist, or Kafka says nothing about them, and are new when they are there again."""
        news = {topic for topic, places in ends.items() if self._is_news(topic, places)}
        for topic in self._told.keys() - ends.keys():
            del self._told[topic]
        for topic in news:
            self._told[topic] = dict(ends[topic])
        return news

    def record(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a record that has come is news."""
        told = self._told.setdefault(topic, {})
        if offset < told.get(partition, 0):
            return False
        told[partition] = offset + 1
        return True

    def _is_news(self, topic: str, places: Mapping[int, int]) -> bool:
        return self._told.get(topic) != dict(places)

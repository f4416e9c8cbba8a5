"""All limits of one node on statements, read from its configuration: `StatementLimits`.

It bundles names of topics (`standpipe.topics`), sizes of the catalog (`quotas.py`) and replicas of
a topic. Worker and leader pass it to `propose`; this module checks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from standpipe.config.registry import Config
from standpipe.config.statements import SOURCE_REPLICAS_MAX, TOPICS_INTERNAL, TOPICS_PREFIXES
from standpipe.control.ddl.quotas import Quotas
from standpipe.topics import TopicRules


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The limits of one node on statements."""

    rules: TopicRules = field(default_factory=TopicRules)
    quotas: Quotas = field(default_factory=Quotas)
    replicas_max: int = SOURCE_REPLICAS_MAX.default

    @classmethod
    def of(cls, config: Config, service_id: str) -> StatementLimits:
        """Those of a node. `service_id`: the cluster's, which names its own topics."""
        rules = TopicRules.of(service_id, config[TOPICS_INTERNAL], config[TOPICS_PREFIXES])
        return cls(rules, Quotas.of(config), config[SOURCE_REPLICAS_MAX])


#: What a new configuration says.
DEFAULT_LIMITS: Final = StatementLimits()

"""The operator's settings of Spark: from the configuration and from a file of Spark's format.

Not here: which are refused (`config/spark.py`), the pipeline's own settings (`session.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from standpipe.adapters.files.private import read_private
from standpipe.adapters.kafka.client_files import parse_properties
from standpipe.config import spark as rules
from standpipe.config.registry import Config
from standpipe.errors import ConfigError

#: spark-submit sets it, whatever it is told
_SPARKS_OWN: Final = ("spark.submit.deployMode",)
#: lists: what the operator sets is added to the pipeline's own -> what is between two items
_ADDED: Final = {"spark.jars": ",", "spark.driver.extraJavaOptions": " "}


@dataclass(frozen=True)
class SparkSettings:
    """Settings by name. The secret ones are for no command line and no message."""

    public: Mapping[str, str]
    secret: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of(cls, config: Config) -> SparkSettings:
        """Those of the configuration, over those of the file that it names. Raises ConfigError."""
        path = config[rules.PROPERTIES_FILE]
        found = _of_file(Path(path)) if path else {}
        settings = {**found, **config.passed_on}
        secret = {name: value for name, value in settings.items() if rules.is_secret(name)}
        public = {name: value for name, value in settings.items() if name not in secret}
        return cls(public, secret)

    def over(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The pipeline's own settings with the operator's public ones over them."""
        merged = {**ours, **self.public}
        for name, separator in _ADDED.items():
            both = [each[name] for each in (ours, self.public) if each.get(name)]
            if both:
                merged[name] = separator.join(both)
        return merged


def check_found(found: Iterable[str], ours: Collection[str]) -> None:
    """Raises ConfigError for a refused setting that a new JVM of Spark has from elsewhere, as from
    `conf/spark-defaults.conf`. `found`: all that it has; `ours`: what it was started with."""
    for name in found:
        if name not in ours and name not in _SPARKS_OWN:
            rules.check(name)


def _of_file(path: Path) -> dict[str, str]:
    found = parse_properties(read_private(path, rules.PROPERTIES_FILE.name))
    for name in found:
        if not name.startswith(rules.PREFIX):
            raise ConfigError(
                f"{path} sets {name}, which is no setting of Spark",
                next_step=f"each line of it is {rules.PREFIX}NAME VALUE",
            )
        rules.check(name)
    return found

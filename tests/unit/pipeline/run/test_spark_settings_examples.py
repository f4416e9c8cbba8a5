"""The examples of docs/operations/spark.md are settings that a pipeline takes."""

from __future__ import annotations

import re
from pathlib import Path

from standpipe.config import registry
from standpipe.pipeline.run.spark_settings import SparkSettings

PAGE = Path(__file__).parents[4] / "docs/operations/spark.md"
_EXAMPLE = re.compile(r"\(example\):\n\n```(\w+)\n(.*?)```", re.DOTALL)


def test_the_examples(tmp_path: Path) -> None:
    found = _EXAMPLE.findall(PAGE.read_text().replace("FOLDER", str(tmp_path)))
    (secrets,) = (text for kind, text in found if kind == "properties")
    path = tmp_path / "spark.properties"
    path.write_text(secrets)
    path.chmod(0o600)
    settings: list[SparkSettings] = []
    for text in (text for kind, text in found if kind == "toml"):
        file = tmp_path / "settings.toml"
        file.write_text(text)
        settings.append(SparkSettings.of(registry.load(registry.file_layer(file))))
    first, standalone, kubernetes = settings
    assert (first.public["spark.executor.cores"], len(first.secret)) == ("2", 2)
    assert standalone.public["spark.driver.port"] == "7078"
    assert kubernetes.public["spark.kubernetes.namespace"] == "shop"

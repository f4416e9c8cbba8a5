"""The examples of docs/operations/spark.md are settings that a pipeline takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from standpipe.config import registry
from standpipe.pipeline.run.spark_settings import SparkSettings

PAGE = Path(__file__).parents[4] / "docs/operations/spark.md"
_EXAMPLE = re.compile(r"\(example\):\n\n```(\w+)\n(.*?)```", re.DOTALL)


def test_the_examples(tmp_path: Path) -> None:
    found = dict(_EXAMPLE.findall(PAGE.read_text().replace("FOLDER", str(tmp_path))))
    assert found.keys() >= {"toml", "properties"}
    secrets = tmp_path / "spark.properties"
    secrets.write_text(found["properties"])
    secrets.chmod(0o600)
    tomllib.loads(found["toml"])
    file = tmp_path / "settings.toml"
    file.write_text(found["toml"])
    settings = SparkSettings.of(registry.load(registry.file_layer(file)))
    assert settings.public["spark.executor.cores"] == "2"
    assert len(settings.secret) == 2

"""The operator's settings of Spark: their file, what wins, what is kept out of command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.config import registry
from standpipe.config.spark import PROPERTIES_FILE
from standpipe.errors import ConfigError
from standpipe.pipeline.run.spark_settings import SparkSettings, check_found


def settings(folder: Path, text: str, **given: str) -> SparkSettings:
    path = folder / "spark.properties"
    path.write_text(text)
    path.chmod(0o600)
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SparkSettings.of(registry.load({PROPERTIES_FILE.name: str(path), **named}))


def test_the_configuration_wins_over_the_file(tmp_path: Path) -> None:
    text = "spark.executor.memory 1g\nspark.executor.cores=2\n# spark.a b\n"
    found = settings(tmp_path, text, spark_executor_memory="4g")
    assert found.public == {"spark.executor.memory": "4g", "spark.executor.cores": "2"}


def test_secrets_are_apart_and_not_printed(tmp_path: Path) -> None:
    found = settings(tmp_path, "spark.authenticate.secret hunter2\nspark.authenticate true\n")
    assert found.secret == {"spark.authenticate.secret": "hunter2"}
    assert "hunter2" not in str(found.over({})) + repr(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spark.speculation true", "spark.speculation is refused"),
        ("executor.memory 1g", "no setting of Spark"),
    ],
)
def test_a_line_that_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings(tmp_path, text)


def test_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "spark.properties"
    path.write_text("spark.executor.cores 2")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may use it"):
        SparkSettings.of(registry.load({PROPERTIES_FILE.name: str(path)}))


def test_the_operator_wins_but_lists_are_added_to() -> None:
    ours = {"spark.ui.enabled": "false", "spark.jars": "/a.jar", "spark.locality.wait": "0"}
    theirs = SparkSettings(
        {
            "spark.ui.enabled": "true",
            "spark.jars": "/b.jar",
            "spark.driver.extraJavaOptions": "-Dx=1",
        }
    )
    assert theirs.over(ours) == {
        "spark.ui.enabled": "true",
        "spark.jars": "/a.jar,/b.jar",
        "spark.locality.wait": "0",
        "spark.driver.extraJavaOptions": "-Dx=1",
    }


@pytest.mark.parametrize(
    ("name", "is_refused", "why"),
    [
        ("spark.sql.extensions", True, "of spark-defaults.conf"),
        ("spark.executor.cores", False, "harmless, wherever it is from"),
        ("spark.sql.ansi.enabled", False, "the pipeline sets it, over what a file says"),
    ],
)
def test_what_spark_has_from_elsewhere(name: str, is_refused: bool, why: str) -> None:
    refused: list[str] = []
    try:
        check_found(["spark.submit.deployMode", name], ["spark.sql.ansi.enabled"])
    except ConfigError as error:
        refused.append(error.message)
    assert bool(refused) is is_refused, why

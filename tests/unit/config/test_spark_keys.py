"""Which settings of Spark a configuration may have."""

import pytest

from standpipe.config import registry, spark
from standpipe.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("spark.executor.memory", "2g", "2g"),
        ("spark.executor.cores", 2, "2"),
        ("spark.eventLog.enabled", True, "true"),
        ("spark.kubernetes.namespace", "shop", "shop"),
        ("spark.sql.adaptive.enabled", "false", "false"),
        ("spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB", 500, "500"),
    ],
)
def test_passed_on_as_text(name: str, value: object, text: str) -> None:
    loaded = registry.load({name: value})
    assert (loaded.passed_on, loaded.values) == ({name: text}, {})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("spark.speculation", "write its records twice"),
        ("spark.sql.ansi.enabled", "a bad cast are null"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.caseSensitive", "two columns"),
        ("spark.sql.shuffle.partitions", "standpipe.pipeline.shuffle.partitions"),
        ("spark.sql.streaming.stateStore.providerClass", "another form"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "another form"),
        ("spark.sql.streaming.stateStore.rocksdb.formatVersion", "another form"),
        ("spark.sql.streaming.checkpointFileManagerClass", "another form"),
        ("spark.sql.streaming.minBatchesToRetain", "taken over"),
        ("spark.sql.legacy.timeParserPolicy", "change what a query computes"),
        ("spark.sql.extensions", "change what a query computes"),
        ("spark.sql.codegenX", "change what a query computes"),
        ("spark.master", "--master"),
        ("spark.submit.deployMode", "the driver is the process"),
        ("spark.redaction.regex", "hides passwords"),
        ("spark.hadoop.fs.permissions.umask-mode", "private"),
    ],
)
def test_refused_by_name_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is refused: ") as caught:
        registry.load({name: "x"})
    assert why in caught.value.message


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
    ],
)
def test_a_secret_is_not_in_a_configuration_and_not_in_the_error(name: str) -> None:
    with pytest.raises(ConfigError, match="others could read it") as caught:
        registry.load({name: "hunter2"})
    assert spark.PROPERTIES_FILE.name in caught.value.next_step
    assert "hunter2" not in f"{caught.value.message} {caught.value.next_step}"


def test_an_entry_for_one_setting_is_not_for_those_that_begin_like_it() -> None:
    assert spark.refusal("spark.master")
    assert not spark.refusal("spark.masterful")
    assert spark.refusal("spark.redaction.anything")


def test_no_allowed_entry_is_dead() -> None:
    for name in spark.ALLOWED_SQL:
        assert spark.refusal(name) == "", name
        assert any(name.startswith(refused) for refused in spark.REFUSED), name

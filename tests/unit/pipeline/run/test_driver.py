import threading
from pathlib import Path

import pytest

from standpipe.errors import ConfigError
from standpipe.pipeline.run import driver

ARGUMENTS = ["--nodes", "a:1,b:2", "--bootstrap-servers", "k:9092", "--checkpoints", "ck"]


@pytest.fixture(autouse=True)
def jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"java_home": "/j", "java_options": ["-Xshare:auto"], "jars": ["a.jar", "b.jar"]}
    monkeypatch.setattr(driver, "_find_jvm", lambda: found)


def test_command_line() -> None:
    config = ["--config", "standpipe.pipeline.shuffle.partitions=3"]
    options = driver._parse([*ARGUMENTS, "--secret-file", "s", *config])
    assert options.nodes == ("a:1", "b:2")
    assert options.master == "local[*]"
    assert options.config.values == {"standpipe.pipeline.shuffle.partitions": 3}
    assert options.jars == (Path("a.jar"), Path("b.jar"))
    assert options.java_options == ("-Xshare:auto",)
    assert options.isolate == "", "it is shared"
    assert driver._parse([*ARGUMENTS, "--secret-file", "s", "--isolate", "T"]).isolate == "T"


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"shuffle\.partitions"):
        driver._parse(
            [*ARGUMENTS, "--secret-file", "s", "--config", "standpipe.pipeline.shuffle.partition=3"]
        )


def test_a_thread_that_fails_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints the exception and goes on without the thread."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def fails() -> None:
        raise ValueError("a bug")

    crashed = driver._listen_for_crashes()
    thread = threading.Thread(target=fails, name="some chore")
    thread.start()
    thread.join()
    assert crashed.is_set()

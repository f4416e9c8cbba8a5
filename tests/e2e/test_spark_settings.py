"""Settings of the operator arrive in the JVM of a pipeline; secrets are on no command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CANARY = "canary-7f3a"
#: a session as the driver opens it; prints what Spark says of itself, and runs a job
CHILD = """
import json, os, sys
from standpipe.config import registry
from standpipe.local.cluster import jvm
from standpipe.pipeline.run import session
from tests.e2e.processes import command_line, descendants

config = registry.load(json.loads(sys.argv[1]))
spark = session.open_session(
    config, master="local[1]", jars=jvm.jars("spark"), java_home=jvm.find_java().home
)
conf = spark.sparkContext.getConf()
context = session.java_context(spark)
lines = [command_line(each) for each in descendants(os.getpid())]
names = ["spark.executor.heartbeatInterval", "spark.locality.wait"]
names += ["spark.hadoop.fs.s3a.secret.key"]
print(json.dumps({"rows": spark.range(7).count(), "lines": lines,
                  "settings": {name: conf.get(name) for name in names},
                  "hadoop": spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
                  "stopped": [session.is_stopped(context), context.stop(),
                              session.is_stopped(context)]}))
session.kill_jvm()
"""


def run_child(settings: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CHILD, json.dumps(settings)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_settings_arrive_and_secrets_show_nowhere(tmp_path: Path) -> None:
    secrets, events = tmp_path / "spark.properties", tmp_path / "events"
    secrets.write_text(f"spark.hadoop.fs.s3a.secret.key {CANARY}\nspark.locality.wait 1s\n")
    secrets.chmod(0o600)
    events.mkdir()
    ran = run_child(
        {
            "spark.properties.file": str(secrets),
            "spark.executor.heartbeatInterval": "7s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["settings"] == {
        "spark.executor.heartbeatInterval": "7s",
        "spark.hadoop.fs.s3a.secret.key": CANARY,
        "spark.locality.wait": "1s",
    }
    assert (said["hadoop"], said["rows"]) == (CANARY, 7)
    assert said["stopped"] == [False, None, True], "as when a master removes the application"
    assert any("heartbeatInterval" in line for line in said["lines"]), "they are looked at"
    assert not [line for line in said["lines"] if CANARY in line]
    assert CANARY not in ran.stderr
    (log,) = events.iterdir()
    text = log.read_text()
    assert '"spark.hadoop.fs.s3a.secret.key":"*********(redacted)"' in text
    assert CANARY not in text


def test_a_refused_setting_of_spark_defaults_ends_the_start(tmp_path: Path) -> None:
    """Spark reads that file by itself, whatever a pipeline passes on."""
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.extensions org.example.Other\n")
    ran = run_child({}, SPARK_CONF_DIR=str(tmp_path))
    assert ran.returncode != 0
    assert "spark.sql.extensions is refused" in ran.stderr

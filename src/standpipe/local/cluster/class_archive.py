"""Makes the class archives of Spark and Kafka: `python -m standpipe.local.cluster.class_archive`.

A trial run starts the embedded broker, and a Spark session that runs a few streaming queries on it.
Both JVMs write what they have loaded to an archive as they exit: up to two minutes and 240 MB, once
for each installed PySpark. Archives of one that is gone, or of its earlier Java or jars, are
removed.

An archive only saves time: without one, Spark and Kafka start more slowly.

Not here: where archives are, and how a JVM is told to use one (`jvm.py`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from standpipe.errors import StandpipeError
from standpipe.local.cluster import jvm, ports
from standpipe.local.cluster.broker import Broker

TRIAL_S_MAX: Final = 300.0
#: in the directory of the archives once it is complete, or once it is known that none can be made
_TRIED: Final = "trial.log"
#: beside it: the directory of PySpark's jars
_PYSPARK: Final = "pyspark"
_LOG_LINES: Final = 20


def make(say: jvm.Say = jvm.say_on_stderr) -> bool:
    """Make the archives unless a trial run was made before. Two processes may ask at once.

    Returns False if there are none: the log of the trial run, which `say` names, tells why. Raises
    JavaMissing, JarsMissing or SetupError (no PySpark).
    """
    java = jvm.find_java()
    home = jvm.class_archives(java)
    home.parent.mkdir(parents=True, exist_ok=True)
    with jvm.locked(home.parent / "lock"):
        if not (home / _TRIED).exists():
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="trial-") as folder:
                draft = Path(folder) / "archives"
                draft.mkdir()
                (draft / _TRIED).write_text(_trial_run(java, draft, Path(folder), say))
                (draft / _PYSPARK).write_text(str(jvm.pyspark_jars()))
                draft.rename(home)
            remove_unused(home)
    if all(jvm.archive_options(conf, java) for conf in ("spark", "broker")):
        return True
    say(f"Java makes no class archive; Spark and Kafka start without. See {home / _TRIED}")
    return False


def remove_unused(home: Path) -> None:
    """Remove the archives beside `home` that no JVM will use any more."""
    for note in home.parent.glob(f"*/{_PYSPARK}"):
        used_by = note.read_text()
        if note.parent != home and (
            used_by == str(jvm.pyspark_jars()) or not Path(used_by).is_dir()
        ):
            shutil.rmtree(note.parent)


def _trial_run(java: jvm.Java, archives: Path, scratch: Path, say: jvm.Say) -> str:
    """Leave the archives in `archives`. Returns the log, with the error if it failed."""
    broker = Broker(
        scratch / "kafka",
        ports.any_port(),
        say=say,
        java_options=_archiving(archives, "broker"),
        stop_s_max=TRIAL_S_MAX,
    )
    command = [sys.executable, "-m", "standpipe.pipeline.run.trial_run"]
    command += ["--directory", str(scratch / "spark"), "--java-home", str(java.home)]
    command += ["--jars", *map(str, jvm.jars("spark", say=say))]
    command += [f"--java-option={option}" for option in _archiving(archives, "spark")]
    try:
        with broker:
            command += ["--bootstrap-servers", broker.bootstrap_servers]
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=TRIAL_S_MAX, check=False
            )
            said = [ran.stdout, ran.stderr, f"exit status {ran.returncode}"]
        said.append(broker.tail_of_log(_LOG_LINES))
    except (StandpipeError, OSError, subprocess.TimeoutExpired) as error:
        said = [str(error)]
    return "\n".join(said)


def _archiving(archives: Path, conf: jvm.JarSet) -> list[str]:
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # this JVM lives for seconds
    return [f"-XX:ArchiveClassesAtExit={archives / conf}.jsa", "-Xlog:cds*=off", *quick]


if __name__ == "__main__":
    raise SystemExit(0 if make() else 1)

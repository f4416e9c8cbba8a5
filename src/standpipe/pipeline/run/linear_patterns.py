"""ksqlDB's regular expressions and LIKE as functions of a session, in linear time.

Spark's own run on Java's engine, where one pattern and one value can hold a task for ever, and no
interrupt ends it. These run on RE2/J, which Hadoop brings into Spark. The class is compiled by
Spark's Janino and put into a jar that the session hands to its executors, so nothing is built and
they need nothing of ours.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from standpipe.sql.expressions.evaluator import WORK_MAX

SOURCE: Final = Path(__file__).with_name("LinearPatterns.java")
#: of one call: about a second. What reads a character of a text in RE2/J takes that many times as
#: long as in RE2, and a batch can wait longer than a worker's loop
STEPS_MAX: Final = 1 << 26
_CLASS: Final = "standpipe.LinearPatterns"
_JAR: Final = "standpipe-linear-patterns.jar"
#: name in templates (sql/functions/text.py, sql/expressions/like.py), what it does, type of result
_FUNCTIONS: Final = (
    ("standpipe_regexp_extract", "EXTRACT", "STRING"),
    ("standpipe_regexp_extract_all", "ALL", "ARRAY<STRING>"),
    ("standpipe_regexp_replace", "REPLACE", "STRING"),
    ("standpipe_regexp_split", "SPLIT", "ARRAY<STRING>"),
    ("standpipe_like", "LIKE", "BOOLEAN"),
)


#: the jar, once it is there: of this process's JVM, until the process ends
_jars: list[TemporaryDirectory[str]] = []
_making = Lock()


def is_needed(*texts: str | None) -> bool:
    """Whether Spark SQL calls one of the functions: compiling takes half a second."""
    return any(name in text for text in texts if text for name, _, _ in _FUNCTIONS)


def register(spark: SparkSession) -> None:
    """Add the functions to a session, and to those that its streaming queries clone from it."""
    java = cast(Any, spark)._jvm
    cast(Any, spark).sql(f"ADD JAR '{_jar(java)}'")
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    (constructor,) = java.java.lang.Class.forName(_CLASS, True, loader).getConstructors()
    types = java.org.apache.spark.sql.types.DataType
    for name, what, of in _FUNCTIONS:
        function = _new(java, constructor, what)
        cast(Any, spark)._jsparkSession.udf().register(name, function, types.fromDDL(of))


def _jar(java: Any) -> Path:
    with _making:
        if not _jars:
            compiler = java.org.codehaus.janino.SimpleCompiler()
            compiler.cook(SOURCE.read_text())
            scratch = java.java.lang.System.getProperty("java.io.tmpdir")
            _jars.append(TemporaryDirectory(prefix="standpipe-", dir=scratch))
            with zipfile.ZipFile(Path(_jars[0].name) / _JAR, "w") as classes:
                for name, code in dict(compiler.getBytecodes()).items():
                    classes.writestr(name.replace(".", "/") + ".class", bytes(code))
        return Path(_jars[0].name) / _JAR


def _new(java: Any, constructor: Any, what: str) -> Any:
    """One function. Py4J would pass a small number as an Integer, whatever is declared."""
    arguments = java.java.util.ArrayList()
    arguments.add(what)
    arguments.add(java.java.lang.Long.valueOf(str(STEPS_MAX)))
    arguments.add(WORK_MAX)
    return constructor.newInstance(arguments.toArray())

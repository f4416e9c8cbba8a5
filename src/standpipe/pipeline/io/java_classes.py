"""Classes that we wrote in Java, for a Spark session and its executors.

They are compiled by Spark's Janino and put into a jar that the session hands to its executors, so
nothing is built and they need nothing of ours.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, cast

from pyspark.sql import SparkSession

#: name of a jar -> its folder, once it is there: of this process's JVM, until the process ends
_jars: Final[dict[str, TemporaryDirectory[str]]] = {}
_making = Lock()


def add_jar(spark: SparkSession, name: str, sources: Sequence[Path]) -> None:
    """Add a jar of these sources' classes to a session, and to those that its streaming queries
    clone from it. Compiling takes up to half a second, the first time in a process."""
    java = cast(Any, spark)._jvm
    cast(Any, spark).sql(f"ADD JAR '{_jar(java, name, sources)}'")


def new_object(spark: SparkSession, of_class: str, *given: Any) -> Any:
    """An object of a class in a jar that was added, by its only constructor. In any thread: ADD JAR
    sets the class loader of its own thread only."""
    java = cast(Any, spark)._jvm
    loader = cast(Any, spark)._jsparkSession.sharedState().jarClassLoader()
    made = java.java.lang.Class.forName(f"standpipe.{of_class}", True, loader)
    (constructor,) = made.getConstructors()
    arguments = java.java.util.ArrayList()
    for each in given:
        arguments.add(each)
    return constructor.newInstance(arguments.toArray())


def new_udf(spark: SparkSession, function: Any, interface: str, of: Any) -> Any:
    """A user-defined function that Spark neither moves before a filter nor runs twice for a row.

    `functions.udf` is called by reflection: Py4J chooses among its overloads by itself, and in some
    JVMs took the one for Scala's functions (UNTYPED_SCALA_UDF). `interface`: UDF1, UDF2, …
    """
    java, new_array = cast(Any, spark)._jvm, cast(Any, spark)._sc._gateway.new_array
    class_of = java.java.lang.Class.forName
    kinds = new_array(java.java.lang.Class, 2)
    kinds[0] = class_of(f"org.apache.spark.sql.api.java.{interface}")
    kinds[1] = class_of("org.apache.spark.sql.types.DataType")
    given = new_array(java.java.lang.Object, 2)
    given[0], given[1] = function, of
    udf = class_of("org.apache.spark.sql.functions").getMethod("udf", kinds)
    return udf.invoke(None, given).asNondeterministic()


def _jar(java: Any, name: str, sources: Sequence[Path]) -> Path:
    with _making:
        if name not in _jars:
            scratch = java.java.lang.System.getProperty("java.io.tmpdir")
            folder = TemporaryDirectory(prefix="standpipe-", dir=scratch)
            with zipfile.ZipFile(Path(folder.name) / name, "w") as classes:
                for source in sources:
                    compiler = java.org.codehaus.janino.SimpleCompiler()
                    compiler.cook(source.read_text())
                    for of_class, code in dict(compiler.getBytecodes()).items():
                        classes.writestr(of_class.replace(".", "/") + ".class", bytes(code))
            _jars[name] = folder
        return Path(_jars[name].name) / name

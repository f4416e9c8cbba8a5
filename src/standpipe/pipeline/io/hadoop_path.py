"""A path in one of Hadoop's file systems, with the methods of `pathlib.Path` that checkpoints use.

    hdfs://namenode:8020/standpipe/checkpoints

It is read and written by the driver's JVM, as Spark does: its settings and logins apply
(`spark.hadoop.*`, Kerberos). Errors are those of `pathlib`: OSError, FileNotFoundError and
FileExistsError. For several threads.

Not here: which files a checkpoint has (`commit/checkpoint.py`).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:  # a simulation has no Spark
    from pyspark.sql import SparkSession

_SOURCE: Final = Path(__file__).with_name("HadoopFiles.java")
#: Java's exception -> Python's; any other of IOException is OSError
_ERRORS: Final[Mapping[str, type[OSError]]] = {
    "java.io.FileNotFoundException": FileNotFoundError,
    "java.nio.file.NoSuchFileException": FileNotFoundError,
    "org.apache.hadoop.fs.FileAlreadyExistsException": FileExistsError,
    "org.apache.hadoop.security.AccessControlException": PermissionError,
}


def hadoop_path(uri: str, spark: SparkSession) -> HadoopPath:
    """The path `uri`, such as hdfs://namenode:8020/checkpoints. Raises OSError if Spark knows no
    such file system, or cannot reach it."""
    context: Any = spark.sparkContext
    (constructor,) = _compiled(context._gateway).getConstructors()
    arguments = context._jvm.java.util.ArrayList()
    arguments.add(uri)
    arguments.add(context._jsc.hadoopConfiguration())
    with _errors():
        files = constructor.newInstance(arguments.toArray())
        return HadoopPath(files, str(files.root()), PurePosixPath(str(files.path())))


#: of each JVM: Py4J confuses two classes of the same name
_classes: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
_compiling: Final = threading.Lock()


def _compiled(gateway: Any) -> Any:
    """Java's class `HadoopFiles` in that JVM."""
    with _compiling:
        if gateway not in _classes:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(_SOURCE.read_text())
            loaded = compiler.getClassLoader().loadClass(f"standpipe.{_SOURCE.stem}")
            _classes[gateway] = loaded
        return _classes[gateway]


class HadoopPath:
    """A path: a file system, and a place in it."""

    __slots__ = ("_files", "_place", "_root")

    def __init__(self, files: Any, root: str, place: PurePosixPath) -> None:
        """`files`: of `HadoopFiles.java`; `root`: the URI of the file system, without a path."""
        self._files, self._root, self._place = files, root, place

    def __str__(self) -> str:
        return f"{self._root}{self._place}"

    def __repr__(self) -> str:
        return f"HadoopPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: HadoopPath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> HadoopPath:
        return self._at(self._place / name)

    def _at(self, place: PurePosixPath) -> HadoopPath:
        return HadoopPath(self._files, self._root, place)

    @property
    def name(self) -> str:
        """The last component."""
        return self._place.name

    @property
    def parent(self) -> HadoopPath:
        """The folder that it is in."""
        return self._at(self._place.parent)

    def joinpath(self, *names: str) -> HadoopPath:
        """Something below."""
        return self._at(self._place.joinpath(*names))

    def resolve(self) -> HadoopPath:
        """Itself: a checkpoint's folder has no symbolic links in Hadoop."""
        return self

    def is_relative_to(self, other: HadoopPath) -> bool:
        """Whether it is below `other`."""
        return self._root == other._root and self._place.is_relative_to(other._place)

    # ------------------------------------------------------------------------- what is there

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        with _errors():
            return bool(self._files.exists(str(self._place)))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        with _errors():
            return bool(self._files.isFolder(str(self._place)))

    def iterdir(self) -> Iterator[HadoopPath]:
        """What is in this folder, in no order. Raises FileNotFoundError."""
        with _errors():
            names = _lines(self._files.names(str(self._place)))
        return (self / name for name in names)

    def glob(self, pattern: str) -> Iterator[HadoopPath]:
        """What a pattern of `*` matches below this folder; nothing if the folder is not there."""
        with _errors():
            places = _lines(self._files.matches(str(self._place), pattern))
        return (self._at(PurePosixPath(place)) for place in places)

    def changed_ms(self) -> int:
        """When the file or the newest file of the folder was written, Unix ms by the store's clock;
        of an empty folder, when it was made."""
        with _errors():
            return int(self._files.changedMs(str(self._place)))

    # ----------------------------------------------------------------------------------- files

    def read_bytes(self) -> bytes:
        """The content of a file."""
        with _errors():
            return bytes(self._files.read(str(self._place)))

    def read_text(self) -> str:
        """The content of a file, UTF-8."""
        return self.read_bytes().decode()

    def write_whole(self, content: bytes) -> None:
        """Create the file, or replace it: who reads it sees all of the old one or of this."""
        with _errors():
            self._files.write(str(self._place), bytearray(content))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        with _errors():
            if not self._files.remove(str(self._place), False) and not missing_ok:
                raise FileNotFoundError(str(self))

    # ---------------------------------------------------------------------------------- folders

    def mkdir(self, *, parents: bool = True, exist_ok: bool = False) -> None:
        """Make a folder. Raises FileExistsError for all but one that make it at the same time,
        unless `exist_ok`."""
        assert parents, "Hadoop always makes them"
        with _errors():
            self._files.makeFolder(str(self._place), exist_ok, uuid.uuid4().hex)

    def rename(self, target: HadoopPath) -> HadoopPath:
        """Give a file or folder another name, in one step. Raises FileExistsError if another has
        it, and FileNotFoundError if this one is not there any more."""
        with _errors():
            self._files.rename(str(self._place), str(target._place))
        return target

    def remove_tree(self) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with _errors():
            self._files.remove(str(self._place), True)

    def copy_tree(self, source: HadoopPath) -> None:
        """Make this folder with a copy of all files of `source`, several at a time. A file that is
        removed meanwhile is left out."""
        with _errors():
            self._files.copyTree(str(source._place), str(self._place))

    def copied(self) -> int:
        """Bytes and files that `copy_tree` has copied so far, for all paths of this file system:
        it grows while a copy advances."""
        return int(self._files.copied())


def _lines(found: Any) -> list[str]:
    """Names as Java returns them: one text for all, as each would be a call of its own."""
    return json.loads(str(found))


@contextmanager
def _errors() -> Generator[None]:
    """Raise Java's exceptions of input and output as Python's."""
    try:
        yield
    except Py4JJavaError as error:
        java: Any = error.java_exception
        while java.getCause() is not None and java.getClass().getName() in _WRAPPERS:
            java = java.getCause()
        names = _names(java)
        if "java.io.IOException" not in names:
            raise
        kind = next((_ERRORS[name] for name in names if name in _ERRORS), OSError)
        raise kind(f"{names[0]}: {java.getMessage()}") from error


_WRAPPERS: Final = (
    "java.lang.reflect.InvocationTargetException",
    "java.util.concurrent.ExecutionException",
)


def _names(java: Any) -> list[str]:
    """The class of an exception and those above it."""
    names: list[str] = []
    kind = java.getClass()
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return names

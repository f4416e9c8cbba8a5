"""Which bytes are SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from standpipe.errors import SetupError
from standpipe.local.cli.sql_files import read_sql


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"SHOW TABLES;", "SHOW TABLES;"),
        (b"\xef\xbb\xbfSHOW TABLES;", "SHOW TABLES;"),
        (b"A;\r\nB;\rC;\n", "A;\nB;\nC;\n"),
        ("'é'".encode(), "'é'"),
        (b"", ""),
    ],
)
def test_a_file_is_utf_8(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "a.sql").write_bytes(content)
    assert read_sql(tmp_path / "a.sql") == text


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"\nA\xe9;", "byte 0xe9 at offset 2, in line 2"),
        (b"\xef\xbb\xbfA\xe9", "byte 0xe9 at offset 4, in line 1"),
        ("A;".encode("utf-16"), "byte 0xff at offset 0, in line 1"),
    ],
)
def test_another_file_is_refused_with_its_name_and_place(
    tmp_path: Path, content: bytes, place: str
) -> None:
    file = tmp_path / "a.sql"
    file.write_bytes(content)
    with pytest.raises(SetupError) as caught:
        read_sql(file, command="RUN SCRIPT")
    assert f"RUN SCRIPT cannot read {file}: {place}" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"cannot read .*none\.sql: No such file"):
        read_sql(tmp_path / "none.sql")

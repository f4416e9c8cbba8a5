"""Bodies in ksqlDB's shape, and carets under the place."""

import pytest

from standpipe import errors


def test_generic_body_carries_details_under_our_name() -> None:
    assert errors.NotReady("not yet", table="T").body() == {
        "@type": "generic_error",
        "error_code": 50305,
        "message": "not yet",
        "standpipe": {"table": "T"},
    }


def test_statement_body_names_the_position() -> None:
    error = errors.UnknownName("no X", statement="SELECT X;", line=1, column=8, hint="try Y")
    assert error.body() == {
        "@type": "statement_error",
        "error_code": 40001,
        "message": "no X",
        "statementText": "SELECT X;",
        "entities": [],
        "standpipe": {"line": 1, "column": 8, "hint": "try Y"},
    }


@pytest.mark.parametrize(
    ("statement", "line", "column", "hint", "shown"),
    [
        ("SELECT X;", 1, 8, "", "no\n  SELECT X;\n         ^"),
        ("SELECT\n X;", 2, 2, "try Y", "no\n   X;\n   ^\ntry Y"),
        ("SELECT X;", None, None, "", "no"),
        ("SELECT X;", 3, 1, "", "no"),
        ("", 1, 1, "", "no"),
    ],
)
def test_pointed(
    statement: str, line: int | None, column: int | None, hint: str, shown: str
) -> None:
    error = errors.StatementError("no", statement=statement, line=line, column=column, hint=hint)
    assert error.pointed() == shown


def test_setup_error_is_two_lines() -> None:
    error = errors.PortInUse("port 1 is taken", next_step="take another")
    assert str(error) == "E-PORT-001 port 1 is taken\n  Next: take another"


def test_the_tree_in_the_module_names_every_class() -> None:
    classes = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.StandpipeError)
    ]
    assert [name for name in classes if name not in (errors.__doc__ or "")] == []

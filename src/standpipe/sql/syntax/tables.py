"""The grammar's parse tables: built in two seconds of processor time, or restored in 0.3.

A node keeps them in a file of its data directory. They are JSON and not what lark saves, a pickle:
a user who can write to that file could run code in every process that reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import version
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token
from lark.grammar import Rule
from lark.lexer import TerminalDef

#: what lark calls, and what `restore` therefore gives it again
_CALLBACKS = ("transformer", "lexer_callbacks")


def build(transformer: object) -> Lark:
    """A parser of ksql.lark. `transformer` has a method for each rule."""
    return Lark(
        _grammar(),
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=cast("Any", transformer),
        lexer_callbacks=_lexer_callbacks(),
    )


def dump(parser: Lark) -> bytes:
    """The tables of `parser`, for `restore`."""
    tables, memo = cast("Any", parser).memo_serialize([TerminalDef, Rule])
    options = tables["options"].items()
    tables["options"] = {name: value for name, value in options if name not in _CALLBACKS}
    return json.dumps({"of": _fingerprint(), "tables": tables, "memo": memo}).encode()


def restore(saved: bytes, transformer: object) -> Lark | None:
    """The parser that `dump` was given; None if these are tables of another grammar, or none."""
    try:
        found = json.loads(saved, object_hook=_with_numbers)
        if found["of"] != _fingerprint():
            return None
        load = cast("Any", Lark)._load_from_dict
        callbacks = {"transformer": transformer, "lexer_callbacks": _lexer_callbacks()}
        return cast("Lark", load(found["tables"], found["memo"], **callbacks))
    except Exception:  # whatever lark makes of a file that was cut, or is of something else
        return None


def _with_numbers(item: dict[str, Any]) -> dict[int | str, Any]:
    """States and tokens are numbers, which JSON turns into texts when they are keys."""
    return {int(key) if key.isdigit() else key: value for key, value in item.items()}


def _grammar() -> str:
    return files("standpipe.sql.syntax").joinpath("ksql.lark").read_text(encoding="utf-8")


def _fingerprint() -> str:
    """Names the grammar and the library that made tables of it."""
    return hashlib.sha256(f"{version('lark')} {_grammar()}".encode()).hexdigest()


def _lexer_callbacks() -> dict[str, Any]:
    """Words of the grammar are names until the lexer finds them among the declared ones."""
    declared = re.findall(r"^%declare (.*)$", _grammar(), re.MULTILINE)
    keywords = {name.removeprefix("_"): name for line in declared for name in line.split()}

    def keyword(token: Token) -> Token:
        name = keywords.get(token.upper())
        return token if name is None else token.update(type=name)

    return {"NAME": keyword}

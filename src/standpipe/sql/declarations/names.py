"""Which names statements may give: to streams, tables, columns, types, variables, queries.

A name is shown in logs, answers and terminals, where a control character or a direction mark makes
it look like another one, and parts of it become folders. ksqlDB allows any text in backticks; what
is refused here is refused only where a name is given, so that an old one can still be dropped.

Not here: names of topics (`checks.check_topic_name`); a name as a path, which is checked again
(`adapters.files.named_paths`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import refusal

#: as many as Kafka takes for a topic
NAME_CHARS_MAX: Final = 249
#: control characters; direction marks and zero-width characters; halves of surrogate pairs; line
#: and paragraph separators (general categories of Unicode)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SEPARATORS: Final = re.compile(r"[/\\]")
_QUERY_ID: Final = re.compile(r"[A-Za-z0-9_]{1,128}")
#: of the ids that statements get by themselves
_RESERVED_IDS: Final = ("CTAS_", "CSAS_", "CST_", "INSERTQUERY_", "TRANSIENT_", "EXTERNAL_")

#: names that our own columns have in Spark beside a query's columns. Others that begin with __ are
#: free: tools that capture changes, such as Debezium, add such columns
_OWN: Final = frozenset(
    {
        *("__BATCH", "__CHANGES", "__DUE", "__EACH", "__END", "__GROUP", "__ID", "__JK", "__LEFT"),
        *("__LIVE", "__LOOSE", "__MEMBER", "__MEMBERS", "__ORDER", "__PRESENT", "__RIGHT", "__ROW"),
        *("__ROWTIME", "__SESSIONS", "__SIDE", "__SIGN", "__START", "__STAYS", "__TABLE", "__TS"),
        *("__avro_key", "__avro_value", "__bad", "__bytes", "__corrupt", "__key", "__null_value"),
        *("__too_large", "__value"),
    }
)
_OWN_NUMBERED: Final = re.compile(r"__(?:[A-Z]|IN|ROW_|KEY_)[0-9]*")
#: a user's own session, which has these as well, may be blind to case
_OWN_IN_ANY_CASE: Final = frozenset({"__LIVE", "__ROWTIME"})


def is_own(name: str) -> bool:
    """Whether a column of ours in Spark may have the name, in this case of its letters."""
    is_numbered = _OWN_NUMBERED.fullmatch(name) is not None
    return name in _OWN or is_numbered or name.upper() in _OWN_IN_ANY_CASE


def check_marks(what: str, name: str, at: Position | None) -> None:
    """Refuses a name with a character that cannot be seen, which the error gives as U+ and hex."""
    for place, character in enumerate(name, start=1):
        if unicodedata.category(character) in _UNSEEN:
            raise refusal(
                f"Invalid {what} name: character {place} is U+{ord(character):04X}"
                f" ({unicodedata.name(character, 'a control character')}), which cannot be seen."
                " Leave it out.",
                at,
            )


def check_length(what: str, name: str, at: Position | None) -> None:
    """Refuses an empty name, and one above NAME_CHARS_MAX."""
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise refusal(
            f"Invalid {what} name: it has {len(name)} characters. Names have 1 to"
            f" {NAME_CHARS_MAX}.",
            at,
        )


def check_name(what: str, name: str, at: Position | None) -> None:
    """Refuses a name that cannot be seen as it is, is too long, or reads like a path."""
    check_marks(what, name, at)
    check_length(what, name, at)
    if not {".", ".."}.isdisjoint(_SEPARATORS.split(name)):
        raise refusal(f"Invalid {what} name: '{name}' reads like a path. Leave out the dots.", at)


def check_columns(names: Iterable[str], at: Position | None) -> None:
    """Refuses columns that cannot be seen as they are, or whose names are too long."""
    for name in names:
        check_marks("column", name, at)
        check_length("column", name, at)


def check_query_id(query_id: str, at: Position | None) -> None:
    """Refuses a QUERY_ID that is not a word, or that a statement could get by itself."""
    check_marks("query", query_id, at)
    if not _QUERY_ID.fullmatch(query_id):
        raise refusal(
            "Query IDs may contain only alphanumeric characters and '_', at most 128 of them. Got:"
            f" '{query_id}'",
            at,
        )
    if query_id.upper().startswith(_RESERVED_IDS):
        raise refusal(
            f"Query IDs must not start with {', '.join(_RESERVED_IDS)}: statements get such ids by"
            f" themselves. Got: '{query_id}'",
            at,
        )

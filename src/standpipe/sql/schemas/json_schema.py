"""A JSON Schema: from its text to a graph of types, as Kafka Connect reads it.

Drafts 4, 6, 7, 2019-09 and 2020-12 alike, of which Connect needs the same few words. Types that
refer to each other are read once each, so the graph may have cycles, and is no larger than its
text. Words that only check values (`pattern`, `maximum`, `enum` beside a type, …) are passed over.
Source: json-schema.org; Confluent's `JsonSchemaData`. Not here: what SQL makes of a type
(`json_columns.py`), records (`data/encoding/json_sr_reading.py`, `json_sr_writing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import msgspec

from standpipe.sql.schemas.registry import BadSchema

#: characters of a schema: a registry is another program, and its answer is kept
SCHEMA_CHARS_MAX: Final = 1_000_000
#: schemas within a schema that are looked at, and steps from one reference to the next
PARTS_MAX: Final = 10_000
#: characters of a property's name and of the schema's own: they are read wherever they are used
NAME_CHARS_MAX: Final = 1_000
#: what Connect adds to a schema
CONNECT_TYPE: Final = "connect.type"
CONNECT_INDEX: Final = "connect.index"
CONNECT_PARAMETERS: Final = "connect.parameters"
DECIMAL_PRECISION: Final = "connect.decimal.precision"
DECIMAL_SCALE: Final = "scale"
#: fields of an object that is an entry of a map
ENTRY: Final = ("key", "value")
#: digits of a number that Connect writes as a text
_DIGITS_MAX: Final = 9
#: types that `type` may name: there are no more
_KINDS_MAX: Final = 7
#: bytes that a reference writes as hexadecimal digits
_ESCAPED: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_NO_TYPE: Final = "a union without a type"
_decode: Final = msgspec.json.Decoder().decode

#: a schema that is no boolean, as it is written
Written = dict[str, Any]
#: `object`: with known properties. `map`: with any. `entries`: a map as an array of objects, each
#: with a key and a value. `optional`: one type, and null if `takes_null`. `union`: several types.
#: `none`: no type that a column could have
Scalar = Literal["null", "boolean", "integer", "number", "string"]
Kind = Scalar | Literal["array", "object", "map", "entries", "optional", "union", "none"]


@dataclass(frozen=True, slots=True)
class JsonProperty:
    """A property of an object."""

    name: str
    of: JsonType
    is_required: bool = False


@dataclass(slots=True, eq=False)
class JsonType:
    """A type. Complete once `parse` has returned."""

    kind: Kind = "none"
    why: str = ""  # of `none`
    title: str = ""  # a name, or one of Connect's logical types
    connect: str = ""  # Connect's name of the type
    precision: int | None = None  # of Connect's decimal
    scale: int | None = None
    properties: tuple[JsonProperty, ...] = ()  # of an object, in the order of its columns
    #: of an array or a map: its values; of entries: the key and the value; of `optional`: the type
    parts: tuple[JsonType, ...] = ()
    takes_null: bool = False  # of `optional`


def parse(text: str) -> JsonType:
    """The type that a schema's text has. Raises BadSchema."""
    if len(text) > SCHEMA_CHARS_MAX:
        raise BadSchema(f"the schema has more than {SCHEMA_CHARS_MAX} characters")
    try:
        written = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise BadSchema(f"the schema is no JSON: {error}") from None
    return _JsonSchemaReader(written).whole()


class _JsonSchemaReader:
    """Reads what it finds one after another, so that no text makes it recurse."""

    def __init__(self, root: Any) -> None:
        self._root = root
        named = _object(root) or {}
        base = _text(named, "$id" if "$id" in named else "id").removesuffix("#")
        if len(base) > NAME_CHARS_MAX:
            raise BadSchema(f"the schema's id has more than {NAME_CHARS_MAX} characters")
        self._base = f"{base}#"  # made once, and not for each reference
        self._parts_left = PARTS_MAX
        self._made: dict[int, JsonType] = {}  # by the identity of what is written
        self._waiting: list[tuple[JsonType, Written]] = []
        self._unions: list[JsonType] = []
        self._referred: dict[str, Any] = {}  # reference -> what it refers to
        self._required: dict[int, frozenset[str]] = {}  # by the identity of what is written

    def whole(self) -> JsonType:
        """The root's type, with all that it reaches."""
        made = self._type(self._root)
        while self._waiting:
            self._complete(*self._waiting.pop())
        for union in self._unions:  # once each, however many types refer to it
            _settle(union)
        return made

    def _type(self, written: Any) -> JsonType:
        """The type of a schema, which is completed later."""
        self._count()
        given = _object(self._resolved(written))
        if given is None:
            return JsonType(why="true" if written is True else "no schema")
        made = self._made.get(id(given))
        if made is None:
            made = self._made[id(given)] = JsonType()
            self._waiting.append((made, given))
        return made

    def _count(self) -> None:
        self._parts_left -= 1
        if self._parts_left < 0:
            raise BadSchema(f"the schema has more than {PARTS_MAX} parts")

    # ----------------------------------------------------------------------------- references

    def _resolved(self, written: Any) -> Any:
        """What a schema refers to, or the schema itself."""
        while reference := _text(_object(written) or {}, "$ref"):
            self._count()
            if reference not in self._referred:
                self._referred[reference] = self._target(reference)
            if self._referred[reference] is written:
                raise BadSchema(f"{reference:.80} refers to itself")
            written = self._referred[reference]
        return written

    def _target(self, reference: str) -> Any:
        place = reference
        if reference.startswith(self._base):
            place = reference[len(self._base) - 1 :]
        pointer = _ESCAPED.sub(_unescaped, place[1:])
        if not place.startswith("#") or (pointer and not pointer.startswith("/")):
            raise BadSchema(f"it refers to {reference!r:.80}, which is not supported")
        found: Any = self._root
        for token in pointer.split("/")[1:]:
            found = _part(found, token.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise BadSchema(f"it refers to {reference!r:.80}, where there is nothing")
        return found

    # ---------------------------------------------------------------------------------- types

    def _complete(self, made: JsonType, given: Written) -> None:
        made.title = _text(given, "title")
        made.connect = _text(given, CONNECT_TYPE)
        parameters = _object(given.get(CONNECT_PARAMETERS)) or {}
        made.precision = _number(parameters.get(DECIMAL_PRECISION))
        made.scale = _number(parameters.get(DECIMAL_SCALE))
        branches = _branches(given)
        if _list(given.get("allOf")) is not None:
            self._all_of(made, given)
        elif branches is not None and "properties" not in given:
            self._union(made, branches)
        else:
            self._by_kind(made, given)

    def _union(self, made: JsonType, branches: list[Any]) -> None:
        made.kind, made.parts = "union", tuple(map(self._type, branches))
        self._unions.append(made)

    def _by_kind(self, made: JsonType, given: Written) -> None:
        kind = given.get("type", _implied(given))
        several = _list(kind)
        if several is None:
            self._of_kind(made, kind, given)
            return
        if len(several) > _KINDS_MAX:
            raise BadSchema(f"'type' names more than {_KINDS_MAX} types")
        kinds = dict.fromkeys(each for each in several if isinstance(each, str))
        takes_null = "null" in kinds
        others = [each for each in kinds if each != "null"]
        if len(others) != 1:
            made.kind, made.why = ("union", "") if others else ("none", _NO_TYPE)
            return
        part = replace(made)
        self._count()
        self._of_kind(part, others[0], given)
        made.kind, made.parts, made.takes_null = "optional", (part,), takes_null

    def _of_kind(self, made: JsonType, kind: Any, given: Written) -> None:
        match kind:
            case "array":
                self._array(made, given)
            case "object":
                self._properties(made, given)
            case "null" | "boolean" | "integer" | "number" | "string":
                made.kind = kind
            case str():
                made.why = f"{kind:.80}"
            case _:
                made.why = "a schema without a type"

    def _array(self, made: JsonType, given: Written) -> None:
        items = _object(self._resolved(given.get("items")))
        if items is None:
            made.why = "an array without one type of its items"
            return
        named = _object(items.get("properties")) or {}
        if made.connect == "map" and all(each in named for each in ENTRY):
            made.kind = "entries"
            made.parts = tuple(self._type(named[each]) for each in ENTRY)
        else:
            made.kind, made.parts = "array", (self._type(items),)

    def _properties(self, made: JsonType, given: Written) -> None:
        """Of an object: those that are known, or the type of all."""
        named, others = _object(given.get("properties")), given.get("additionalProperties")
        if made.connect == "map" or (not named and _object(others) is not None):
            made.kind, made.parts = "map", (self._type(others),)
            return
        required = self._required_names(given)
        found = {name: (each, name in required) for name, each in (named or {}).items()}
        made.kind, made.properties = "object", self._ordered(found)

    def _required_names(self, given: Written) -> frozenset[str]:
        """Of an object, which many an `allOf` may name."""
        if id(given) not in self._required:
            names = _list(given.get("required")) or []
            self._required[id(given)] = frozenset(each for each in names if isinstance(each, str))
        return self._required[id(given)]

    def _ordered(self, found: Mapping[str, tuple[Any, bool]]) -> tuple[JsonProperty, ...]:
        """Properties in the order that Connect notes, else in that of the text."""
        if any(len(name) > NAME_CHARS_MAX for name in found):
            raise BadSchema(f"a property's name has more than {NAME_CHARS_MAX} characters")

        def place(numbered: tuple[int, tuple[str, tuple[Any, bool]]]) -> int:
            position, (_, (written, _)) = numbered
            index = (_object(written) or {}).get(CONNECT_INDEX)
            return index if isinstance(index, int) and not isinstance(index, bool) else position

        ordered = [each for _, each in sorted(enumerate(found.items()), key=place)]
        return tuple(
            JsonProperty(name, self._type(written), is_required)
            for name, (written, is_required) in ordered
        )

    def _all_of(self, made: JsonType, given: Written) -> None:
        """An object with the properties of all parts. If none has any: the type of the first part,
        and of a union before that."""
        found: dict[str, tuple[Any, bool]] = {}
        unions: list[list[Any]] = []
        others: list[Written] = []
        for part in self._parts_of_all(given):
            for name, each in (_object(part.get("properties")) or {}).items():
                self._count()
                found[name] = (each, name in self._required_names(part))
            if (branches := _branches(part)) is not None:
                unions.append(branches)
            elif "type" in part or _implied(part):
                others.append(part)
        if found:
            made.kind, made.properties = "object", self._ordered(found)
        elif unions:
            self._union(made, unions[0])
        elif others:
            made.connect = made.connect or _text(others[0], CONNECT_TYPE)
            self._by_kind(made, others[0])
        else:
            made.why = "allOf without a type"

    def _parts_of_all(self, given: Written) -> Iterator[Written]:
        """A schema and all that its `allOf` names, also through references, each once."""
        seen: set[int] = set()
        waiting: list[Any] = [given]
        while waiting:
            self._count()
            part = _object(self._resolved(waiting.pop()))
            if part is not None and id(part) not in seen:
                seen.add(id(part))
                yield part
                waiting += reversed(_list(part.get("allOf")) or [])


def _object(written: Any) -> Written | None:
    return cast("Written", written) if isinstance(written, dict) else None


def _list(written: Any) -> list[Any] | None:
    return cast("list[Any]", written) if isinstance(written, list) else None


def _text(given: Written, word: str) -> str:
    found = given.get(word)
    return found if isinstance(found, str) else ""


def _number(written: Any) -> int | None:
    """A number of Connect's parameters, which are texts."""
    text = str(written) if isinstance(written, (str, int)) else ""
    is_number = len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal()
    return int(text) if is_number else None


def _unescaped(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode(errors="replace")


def _part(of: Any, name: str) -> Any:
    """What a pointer's step leads to; None: nothing."""
    if (items := _list(of)) is not None:
        index = _number(name)
        return items[index] if index is not None and index < len(items) else None
    return (_object(of) or {}).get(name)


def _settle(union: JsonType) -> None:
    """Decides what a union is, once the kinds of its branches are known."""
    others = [each for each in union.parts if each.kind != "null"]
    union.takes_null = len(others) < len(union.parts)
    union.parts = tuple(others) if len(others) == 1 else ()
    if len(others) == 1:
        union.kind = "optional"
    elif not others:
        union.kind, union.why = "none", _NO_TYPE  # not "null": a union around it may be settled


def _branches(given: Written) -> list[Any] | None:
    """The branches of a union."""
    return _list(given.get("oneOf", given.get("anyOf")))


def _implied(given: Written) -> str | None:
    """The type that a schema has without naming one."""
    if "properties" in given or _object(given.get("additionalProperties")) is not None:
        return "object"
    if "items" in given:
        return "array"
    return "string" if _list(given.get("enum")) is not None else None

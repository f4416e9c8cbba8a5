"""The registry of configuration keys as text: docs/config.md, and `standpipe config`.

`python -m standpipe.local.docgen.config > docs/config.md` (or `make docs`) writes the page; a tidy
test fails if the page and the registry differ.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from standpipe.config import registry, spark
from standpipe.errors import ConfigError
from standpipe.local.docgen.lines import items, paragraph

HEAD = """\
# Configuration keys

Generated from `src/standpipe/config/` by `make docs`; change it there.

Layers, strongest first: command line (`--set KEY=VALUE`), environment (the upper-case name, `_`
for `.`), a TOML file (`--config FILE`), the default. An unknown key is an error that names the
nearest one.
"""


SPARK = """\
## Settings of Spark: `spark.*`

A pipeline passes them on to its Spark session ([guide](operations/spark.md)). A setting whose name
says that it is a secret (`secret`, `password`, `token`, `access.key`) comes only from the file that
`spark.properties.file` names. Nodes ignore them.
"""


def page() -> str:
    """docs/config.md."""
    parts = [HEAD, *(_section(key) for key in registry.KEYS.values())]
    if registry.RELATIONS:
        rules = items([relation.why for relation in registry.RELATIONS])
        parts.append(f"## Relations\n\nChecked at every start:\n\n{rules}")
    parts.append(_of_spark())
    ignored = items([f"`{prefix}*`: {why}" for prefix, why in registry.IGNORED_PREFIXES.items()])
    parts.append(f"## Accepted and ignored\n\nWith a warning at start:\n\n{ignored}")
    return "\n".join(parts)


def _of_spark() -> str:
    refused = items([f"`{name}{_rest(name)}`: {why}" for name, why in spark.REFUSED.items()])
    allowed = paragraph(", ".join(f"`{name}{_rest(name)}`" for name in spark.ALLOWED_SQL))
    return f"{SPARK}\nRefused:\n\n{refused}\nOf `spark.sql.*`, these are passed on:\n\n{allowed}\n"


def _rest(name: str) -> str:
    return "*" if name.endswith(".") else ""


def show(console: Console, values: registry.Config, name: str | None, *, as_json: bool) -> None:
    """Print one key or all. Raises ConfigError for an unknown name."""
    if name is not None and name not in registry.KEYS:
        near = difflib.get_close_matches(name, registry.KEYS, n=1)
        raise ConfigError(
            f"unknown key {name}",
            next_step=f"did you mean {near[0]}?" if near else "see `standpipe config`",
        )
    chosen = [registry.KEYS[name]] if name is not None else list(registry.KEYS.values())
    if as_json:
        listed = {key.name: {"value": values[key], "default": key.default} for key in chosen}
        print(msgspec.json.format(msgspec.json.encode(listed)).decode())
        return
    for key in chosen:
        line = Text.assemble((key.name, "bold"), f" = {values[key]} {key.unit}")
        console.print(line)
        console.print(f"    {key.doc}", style="dim", markup=False, highlight=False)
    if name is None:
        for setting, value in values.passed_on.items():
            console.print(f"{setting} = {value}", markup=False, highlight=False)


def _section(key: registry.ConfigKey[Any]) -> str:
    facts = (
        f"{_type(key)}; default {_shown(key.default)}{_bounds(key)}; from {key.source}; "
        f"environment `{key.environment_name}`."
    )
    if key.aliases:
        facts += f" Also named {' and '.join(f'`{name}`' for name in key.aliases)}."
    return f"## `{key.name}`\n\n{paragraph(key.doc)}\n\n{paragraph(facts)}\n"


def _type(key: registry.ConfigKey[Any]) -> str:
    names = {"int": "Whole number", "float": "Number", "bool": "true or false", "str": "Text"}
    unit = f", {key.unit}" if key.unit else ""
    return f"{names[key.type.__name__]}{unit}"


def _shown(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _bounds(key: registry.ConfigKey[Any]) -> str:
    if key.low is None and key.high is None:
        return ""
    if key.high is None:
        return f"; at least {_number(key.low)}"
    if key.low is None:
        return f"; ≤ {_number(key.high)}"
    return f"; from {_number(key.low)} to {_number(key.high)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


if __name__ == "__main__":
    print(page(), end="")

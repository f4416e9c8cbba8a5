"""How keys are declared, layered and checked.

Layers, strongest first: command line, environment (`KSQL_HEARTBEAT_ENABLE` for
`ksql.heartbeat.enable`), a TOML file, the default. An unknown key is an error that names the
nearest one; a key of ksqlDB or Kafka Streams without a meaning here is accepted with a warning.

Not here: which keys exist (`keys.py`, `liveness.py`).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from standpipe.errors import ConfigError

T = TypeVar("T", int, float, bool, str)


@dataclass(frozen=True, kw_only=True)
class ConfigKey(Generic[T]):
    """One configuration key. `unit` is a word (`ms`, `bytes`, `count`), else empty."""

    name: str
    type: type[T]
    default: T
    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    source: str = "standpipe"
    #: names a file of the node, whose place concerns no client
    is_private: bool = False
    #: other names of the key, as ksqlDB and Kafka's own tools spell it
    aliases: tuple[str, ...] = ()
    #: `load` refuses it, so that no command line, file of a node or list of properties contains it:
    #: the code that uses it reads it from a file or from the environment
    is_secret: bool = False

    @property
    def environment_name(self) -> str:
        """The environment variable that sets the key."""
        return self.name.replace(".", "_").upper()

    def parse(self, text: object) -> T:
        """Value of this key from text or TOML. Raises ConfigError that names key and bounds."""
        try:
            value = self._convert(text)
        except ValueError as error:
            raise ConfigError(
                f"{self.name} = {text!r} is not a valid {self.type.__name__}",
                next_step=f"give a {self.type.__name__}, e.g. {self.default!r}",
            ) from error
        low_ok = self.low is None or isinstance(value, str) or value >= self.low
        high_ok = self.high is None or isinstance(value, str) or value <= self.high
        if not (low_ok and high_ok):
            raise ConfigError(
                f"{self.name} = {value} is out of bounds",
                next_step=f"give a value from {self.low} to {self.high} {self.unit}".rstrip(),
            )
        return value

    def _convert(self, text: object) -> T:
        if self.type is bool:
            word = str(text).strip().lower()
            if word not in ("true", "false"):
                raise ValueError(word)
            return cast(T, word == "true")
        return self.type(cast(Any, text))


@dataclass(frozen=True)
class KeyConstraint:
    """A condition between keys that must hold for every configuration, and why."""

    holds: Callable[[Config], bool]
    why: str


KEYS: dict[str, ConfigKey[Any]] = {}
RELATIONS: list[KeyConstraint] = []
#: another name of a key -> its name
ALIASES: dict[str, str] = {}
#: prefix of keys that no code reads -> what to do instead. `load` refuses them: a client would
#: silently run without the setting
REFUSED_PREFIXES: dict[str, str] = {}
#: prefix of another system's settings -> what raises ConfigError for one that it does not get. The
#: others are passed on to it as they are
PASSED_ON: dict[str, Callable[[str], None]] = {}

#: Keys of ksqlDB and Kafka Streams that are read and then ignored, by prefix, with the reason.
IGNORED_PREFIXES: dict[str, str] = {
    "ksql.connect.": "connectors are not part of Standpipe",
    "ksql.worker.pool.": "there is no thread pool to size",
    "ksql.heartbeat.thread.pool.": "there is no thread pool to size",
    "ksql.heartbeat.discover.": "members are known from the metadata log",
    "ksql.query.pull.thread.pool.": "there is no thread pool to size",
    "ksql.query.pull.router.thread.pool.": "there is no thread pool to size",
    "ksql.streams.": "Spark runs the queries, not Kafka Streams",
}


def key(
    name: str,
    type_: type[T],
    default: T,
    *,
    doc: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    source: str = "standpipe",
    is_private: bool = False,
    aliases: tuple[str, ...] = (),
    is_secret: bool = False,
) -> ConfigKey[T]:
    """Declare a key. This is the only place that names it."""
    made = ConfigKey(
        name=name,
        type=type_,
        default=default,
        doc=doc,
        unit=unit,
        low=low,
        high=high,
        source=source,
        is_private=is_private,
        aliases=aliases,
        is_secret=is_secret,
    )
    for each in (name, *aliases):
        assert each not in KEYS, each
        assert each not in ALIASES, each
    KEYS[name] = made
    ALIASES.update(dict.fromkeys(aliases, name))
    return made


def relation(holds: Callable[[Config], bool], *, why: str) -> None:
    """Declare a relation between keys that `load` checks."""
    RELATIONS.append(KeyConstraint(holds, why))


@dataclass(frozen=True)
class Config:
    """Values of all keys. `config[SEND]` has the key's type; `warnings` are logged at start."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warnings: tuple[str, ...] = ()
    #: settings of another system, by name (`PASSED_ON`)
    passed_on: Mapping[str, str] = field(default_factory=dict[str, str])

    def __getitem__(self, item: ConfigKey[T]) -> T:
        return cast(T, self.values.get(item.name, item.default))


def load(*layers: Mapping[str, object]) -> Config:
    """Merge layers, weakest first, and check every value and relation.

    Raises ConfigError for an unknown key (it names the nearest one), a value out of bounds, or a
    broken relation.
    """
    values: dict[str, Any] = {}
    warnings: list[str] = []
    passed_on: dict[str, str] = {}
    for layer in layers:
        for name, text in canonical(layer).items():
            if name in KEYS:
                _refuse_secret(KEYS[name])
                values[name] = KEYS[name].parse(text)
            elif _is_passed_on(name):
                passed_on[name] = text_of(text)
            else:
                warnings.append(_ignored(name))
    config = Config(values, tuple(warnings), passed_on)
    for rule in RELATIONS:
        if not rule.holds(config):
            raise ConfigError(
                f"settings contradict each other: {rule.why}", next_step="change one of these keys"
            )
    return config


def canonical(layer: Mapping[str, object]) -> dict[str, object]:
    """A layer with the names of keys in place of their aliases. Raises ConfigError where two names
    of a key have different values."""
    found: dict[str, object] = {}
    named: dict[str, str] = {}
    for name, value in layer.items():
        key_name = ALIASES.get(name, name)
        if key_name in found and str(found[key_name]) != str(value):
            raise ConfigError(
                f"{named[key_name]} and {name} are one key and contradict each other",
                next_step=f"set only {key_name}",
            )
        found[key_name], named[key_name] = value, name
    return found


def _refuse_secret(secret: ConfigKey[Any]) -> None:
    if secret.is_secret:
        raise ConfigError(
            f"{secret.name} is a secret: others could read it in a command line or in the files "
            "that list a node's settings",
            next_step=f"write it into a file that only its owner can read and name that with "
            f"{secret.name}.file, or set the environment variable {secret.environment_name}",
        )


def _is_passed_on(name: str) -> bool:
    """Raises ConfigError for a setting that its system does not get."""
    for prefix, check in PASSED_ON.items():
        if name.startswith(prefix):
            check(name)
            return True
    return False


def text_of(value: object) -> str:
    """A value of a TOML file as text, as a command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ignored(name: str) -> str:
    for prefix, instead in REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            raise ConfigError(f"{name} is not supported", next_step=instead)
    for prefix, why in IGNORED_PREFIXES.items():
        if name.startswith(prefix):
            return f"{name} is ignored: {why}"
    near = difflib.get_close_matches(name, (*KEYS, *ALIASES), n=1)
    raise ConfigError(
        f"unknown key {name}",
        next_step=f"did you mean {near[0]}?" if near else "see docs/config.md",
    )


def file_layer(path: Path) -> dict[str, object]:
    """Keys of a TOML file; both `"a.b.c" = 1` and `[a.b] c = 1` spell `a.b.c`."""
    flat: dict[str, object] = {}

    def flatten(prefix: str, table: Mapping[str, object]) -> None:
        for name, value in table.items():
            if isinstance(value, Mapping):
                flatten(f"{prefix}{name}.", cast(Mapping[str, object], value))
            else:
                flat[f"{prefix}{name}"] = value

    try:
        flatten("", tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", next_step="fix the file") from error
    return flat


def environment_layer(environment: Mapping[str, str]) -> dict[str, object]:
    """Keys that the environment sets under their upper-case names, and under those of their
    aliases; without secrets (`secrets_of`). Raises ConfigError where they contradict each other."""
    return {
        name: value for name, value in _environment(environment).items() if not KEYS[name].is_secret
    }


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets among what the environment sets. Raises ConfigError as `environment_layer`."""
    found = _environment(environment).items()
    return {name: value for name, value in found if KEYS[name].is_secret}


def secret_variables() -> list[str]:
    """Names of the environment variables that may contain secrets."""
    secret = [key_ for key_ in KEYS.values() if key_.is_secret]
    return [variable for key_ in secret for variable in _variables(key_)]


def _variables(key_: ConfigKey[Any]) -> dict[str, str]:
    """Environment variable -> the name of the key that it stands for. As in ksqlDB's images, those
    of Kafka's clients begin with `KSQL_` too."""
    own = {key_.environment_name: key_.name}
    others = (alias if alias.startswith("ksql.") else f"ksql.{alias}" for alias in key_.aliases)
    named = {
        name.replace(".", "_").upper(): alias
        for name, alias in zip(others, key_.aliases, strict=True)
    }
    return own | named


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    said = {
        name: environment[variable]
        for key_ in KEYS.values()
        for variable, name in _variables(key_).items()
        if variable in environment
    }
    return {name: str(value) for name, value in canonical(said).items()}

"""Other formats of Kafka's client settings: Java properties, JAAS configurations, PEM files.

No message quotes a value: it may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from standpipe.config import kafka as keys
from standpipe.errors import ConfigError

_PAIR: Final = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)", re.DOTALL)
_MODULE: Final = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*\Z", re.DOTALL
)
_OPTION: Final = re.compile(r"""\s*([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s";]+)""", re.DOTALL)
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """A file as java.util.Properties reads it: comments, escapes, continued lines."""
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text)
    found: dict[str, str] = {}
    for line in joined.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            pair = _PAIR.match(stripped)
            name, value = pair.groups() if pair else (stripped, "")
            found[_unescaped(name)] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        code = escape.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meant, text, flags=re.DOTALL)


@dataclass(frozen=True)
class Jaas:
    """One line of a JAAS configuration: who logs in, and with which module."""

    module: str
    username: str
    password: str = field(repr=False)

    def text(self) -> str:
        """The line as Java's clients take it."""
        user, password = _quoted(self.username), _quoted(self.password)
        return f"{self.module} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_jaas(text: str) -> Jaas:
    """Raises ConfigError for what is not one module with a user name and a password."""
    found = _MODULE.match(text)
    options = dict(_OPTION.findall(found.group(2))) if found else {}
    values = {name: _unquoted(value) for name, value in options.items()}
    if found is None or not values.get("username") or not values.get("password"):
        raise ConfigError(
            f"{keys.SASL_JAAS_CONFIG.name} is not one login module with a username and a password",
            next_step='write: MODULE required username="…" password="…";',
        )
    return Jaas(found.group(1), values["username"], values["password"])


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


@dataclass(frozen=True)
class KeyStore:
    """The key and the certificates of a client, from one PEM file."""

    location: Path
    certificates: str = field(repr=False)
    key: str = field(repr=False)
    password: str = field(repr=False)

    @classmethod
    def of(cls, location: Path, text: str, password: str) -> KeyStore:
        """From the content of the file. Raises ConfigError unless both libraries can read it: Java
        takes only PKCS #8."""
        chain, key = _CERTIFICATE.findall(text), _KEY.search(text)
        if not chain or key is None:
            raise ConfigError(
                f"{location} ({keys.KEYSTORE.name}) needs a private key and a certificate, as PEM",
                next_step="`openssl pkcs12 -in STORE.p12 -nodes` makes it from a PKCS #12 store",
            )
        if key.group(1) not in ("", "ENCRYPTED "):
            raise ConfigError(
                f"the key in {location} is not PKCS #8, the only form that Java's clients read",
                next_step="convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW_KEY",
            )
        if bool(key.group(1)) != bool(password):
            has = "is encrypted, and no password is set" if key.group(1) else "is not encrypted"
            raise ConfigError(
                f"the key in {location} {has}",
                next_step=f"set {keys.KEY_PASSWORD_FILE.name} for an encrypted key, only for one",
            )
        return cls(location, "\n".join(chain), key.group(0), password)

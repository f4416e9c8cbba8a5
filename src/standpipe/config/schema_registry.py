"""The keys of the connection to a schema registry, with ksqlDB's names.

Not here: what the settings together mean (`adapters/schema_registry.py`).
"""

from __future__ import annotations

from standpipe.config.registry import REFUSED_PREFIXES, ConfigKey, key

_PREFIX = "ksql.schema.registry."


def _registry_key(
    name: str, doc: str, *, secret: bool = False, place: bool = False
) -> ConfigKey[str]:
    """`place`: it names a file of this machine."""
    return key(
        _PREFIX + name,
        str,
        "",
        source="ksqlDB",
        doc=doc,
        is_private=place or secret,
        is_secret=secret,
    )


URL = _registry_key(
    "url",
    "http(s)://host:port[/path] of a schema registry with Confluent's API; several of its nodes, "
    "separated by commas, are tried in turn. Empty: there is none.",
)
USER_INFO = _registry_key(
    "basic.auth.user.info",
    "user:password for the registry. Only from the environment.",
    secret=True,
)
USER_INFO_FILE = _registry_key(
    "basic.auth.user.info.file",
    "File with user:password for the registry. Only its owner may read it.",
    place=True,
)
CREDENTIALS_SOURCE = _registry_key(
    "basic.auth.credentials.source",
    "USER_INFO, the only source that is supported, and the default.",
)
TRUSTSTORE = _registry_key(
    "ssl.truststore.location",
    "PEM file with the certificates of the authorities to trust; empty: those of the system.",
    place=True,
)
TRUSTSTORE_TYPE = _registry_key("ssl.truststore.type", "PEM, the only type that is supported.")
REFUSED_PREFIXES[_PREFIX] = (
    "remove it: the registry is reached by ksql.schema.registry.url, basic.auth.user.info.file and "
    "ssl.truststore.location alone"
)

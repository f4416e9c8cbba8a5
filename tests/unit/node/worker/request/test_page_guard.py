"""What a web page can make a browser send is refused; what ksqlDB's clients send is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.workers import Worker, page

from standpipe.config import registry
from standpipe.config.listeners import HOSTS_ALLOWED, ORIGINS_ALLOWED
from standpipe.errors import ConfigError
from standpipe.node.worker.request.page_guard import PageGuard, authority

OWN = ("127.0.0.1:8088", "db-1.internal:8088", "", "0.0.0.0:8443", "box")
JSON = "application/json"


def guard(**keys: str) -> PageGuard:
    names = {"hosts": HOSTS_ALLOWED.name, "origins": ORIGINS_ALLOWED.name}
    return PageGuard.of(registry.load({names[key]: value for key, value in keys.items()}), OWN)


def status(made: PageGuard, method: str = "POST", **headers: str) -> int:
    """200: it is not refused."""
    lines = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items() if v != "-"]
    refused = made.refusal(method, lines)
    return 200 if refused is None else refused.status


@pytest.mark.parametrize(
    ("host", "expected", "why"),
    [
        ("127.0.0.1:8088", 200, "an address"),
        ("192.168.1.7", 200, "any address: it cannot be made to resolve to another"),
        ("[::1]:8088", 200, "of IPv6"),
        ("[fe80::1]", 200, "without a port"),
        ("localhost:8088", 200, "the loopback"),
        ("LOCALHOST", 200, "in any case"),
        ("localhost.:8088", 200, "with DNS's last dot"),
        ("app.localhost:8088", 200, "browsers resolve it to the loopback, always"),
        ("db-1.internal:8088", 200, "as it is advertised"),
        ("db-1.internal:9999", 200, "through a tunnel: the port says nothing"),
        ("box", 200, "the host's name"),
        ("-", 200, "none: no browser"),
        ("evil.example", 421, "another name"),
        ("evil.example:8088", 421, "with our port"),
        ("127.0.0.1.evil.example:8088", 421, "that looks like an address"),
        ("db-1.internal.evil.example", 421, "that begins like ours"),
        ("xdb-1.internal", 421, "that ends like ours"),
        ("notlocalhost", 421, "nor like the loopback's"),
        ("2130706433.evil.example", 421, "an address as a number"),
        ("", 421, "an empty one"),
        ("localhost@evil.example", 421, "with what looks like a user"),
    ],
)
def test_hosts(host: str, expected: int, why: str) -> None:
    for method in ("POST", "GET"):
        assert status(guard(), method, host=host, content_type=JSON) == expected, why


@pytest.mark.parametrize(
    ("allowed", "host", "expected", "why"),
    [
        ("sql.example.com", "sql.example.com:8088", 200, "a name"),
        ("a.example, SQL.example.com", "sql.example.com", 200, "one of a list, in any case"),
        (".example.com", "a.b.example.com", 200, "any below"),
        (".example.com", "example.com", 421, "but not itself"),
        (".example.com", "evilexample.com", 421, "nor what only ends alike"),
        ("*", "evil.example", 200, "any"),
    ],
)
def test_allowed_hosts(allowed: str, host: str, expected: int, why: str) -> None:
    assert status(guard(hosts=allowed), host=host, content_type=JSON) == expected, why


@pytest.mark.parametrize("name", [b"host", b"origin"])
def test_several_hosts_or_origins_are_refused(name: bytes) -> None:
    """Each origin was compared with each host: 0.1 s for one head."""
    own = {b"host": b"localhost", b"origin": b"http://localhost"}
    assert guard().refusal("GET", list(own.items())) is None
    refused = guard().refusal("GET", [*own.items(), (name, own[name])])
    assert refused is not None
    assert refused.status == 400


class Counted(frozenset[str]):
    """How often a set was searched."""

    searches = 0

    def __contains__(self, name: object) -> bool:
        self.searches += 1
        return super().__contains__(name)


@pytest.mark.parametrize("host", ["a." * 15_000, "." * 30_000, "x" * 30_000])
def test_a_long_host_is_refused_before_its_parts_are_looked_for(host: str) -> None:
    hosts = Counted({"localhost", ".localhost"})
    made = PageGuard(hosts=hosts, origins=frozenset())
    for headers in ([(b"host", host.encode())], [(b"origin", b"http://" + host.encode())]):
        refused = made.refusal("GET", headers)
        assert refused is not None
        assert len(refused.message) < 500, "nor is it repeated"
    assert hosts.searches == 0


@pytest.mark.parametrize(
    ("origin", "host", "expected", "why"),
    [
        ("-", "localhost:8088", 200, "none: no page of another origin"),
        ("http://localhost:8088", "localhost:8088", 200, "our own page"),
        ("http://LOCALHOST:8088", "localhost:8088", 200, "in any case"),
        ("http://db-1.internal", "db-1.internal", 200, "on the default port"),
        ("http://db-1.internal", "db-1.internal:80", 200, "said or not"),
        ("https://db-1.internal", "db-1.internal:443", 200, "of TLS"),
        ("http://[::1]:8088", "[::1]:8088", 200, "of IPv6"),
        ("http://evil.example", "localhost:8088", 403, "a foreign page"),
        ("http://localhost:3000", "localhost:8088", 403, "another server of this host"),
        ("http://localhost", "localhost:8088", 403, "on its default port"),
        ("https://localhost", "localhost:80", 403, "or that of TLS"),
        ("http://127.0.0.1:8088", "localhost:8088", 403, "another name for us is another origin"),
        ("http://localhost:8088.evil.example", "localhost:8088", 403, "begins alike"),
        ("null", "localhost:8088", 403, "a sandboxed frame, a file, a redirect"),
        ("", "localhost:8088", 403, "an empty one"),
        ("http://evil.example", "-", 403, "and no host"),
    ],
)
def test_origins(origin: str, host: str, expected: int, why: str) -> None:
    for method in ("POST", "GET", "OPTIONS"):
        got = status(guard(), method, origin=origin, host=host, content_type=JSON)
        assert got == expected, why


@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        ("https://console.example.com", "https://console.example.com", 200),
        ("https://console.example.com", "http://console.example.com", 403),
        ("https://console.example.com", "https://console.example.com:8443", 403),
        ("https://a.example, https://b.example", "https://b.example", 200),
        ("*", "null", 200),
    ],
)
def test_allowed_origins(allowed: str, origin: str, expected: int) -> None:
    made = guard(origins=allowed)
    assert status(made, origin=origin, host="localhost", content_type=JSON) == expected


def test_an_allowed_origin_has_a_scheme() -> None:
    with pytest.raises(ConfigError, match="with their scheme"):
        guard(origins="console.example.com")


@pytest.mark.parametrize(
    ("kind", "expected", "why"),
    [
        ("application/json", 200, "most clients"),
        ("application/vnd.ksql.v1+json; charset=utf-8", 200, "ksqlDB's documents"),
        ("application/vnd.ksqlapi.delimited.v1", 200, "its stream of lines"),
        ("Application/JSON ; charset=utf-8", 200, "in any case"),
        ("-", 200, "none: ksqlDB's Java client and CLI"),
        ("text/plain", 415, "a page may send it"),
        ("text/plain;charset=UTF-8", 415, "as fetch does with a text"),
        ("application/x-www-form-urlencoded", 415, "a form, and curl -d"),
        ("multipart/form-data; boundary=x", 415, "a form with a file"),
        ("text/plain; application/json", 415, "a parameter is no type"),
        ("application/json, text/plain", 415, "two in one"),
        ("application/jsonp", 415, "begins alike"),
        ("", 415, "an empty one"),
    ],
)
def test_types_of_a_body(kind: str, expected: int, why: str) -> None:
    assert status(guard(), host="localhost", content_type=kind) == expected, why
    assert status(guard(), "GET", host="localhost", content_type=kind) == 200, "has no body"


@pytest.mark.parametrize(
    "of_browser", [{"origin": "http://localhost:8088"}, {"sec_fetch_site": "cross-site"}]
)
def test_a_browser_must_declare_its_type(of_browser: dict[str, str]) -> None:
    """fetch with an array of bytes sends none, and need not ask first."""
    assert status(guard(), host="localhost:8088", **of_browser) == 415
    assert status(guard(), host="localhost:8088", content_type=JSON, **of_browser) == 200


def test_two_types_are_refused_if_one_is() -> None:
    lines = [(b"content-type", b"application/json"), (b"content-type", b"text/plain")]
    refused = guard().refusal("POST", lines)
    assert refused is not None
    assert "Content-Type: application/json" in refused.message, "it shows what to add"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a:1", ("a", "1")),
        ("a", ("a", "")),
        ("[::1]:1", ("::1", "1")),
        ("[::1]", ("::1", "")),
        ("a.", ("a", "")),
    ],
)
def test_authority(text: str, parts: tuple[str, str]) -> None:
    assert authority(text) == parts


@pytest.mark.parametrize(
    ("more", "known", "why"),
    [
        ((b"content-type", b"application/json"), True, "a client"),
        ((b"content-type", b"text/plain"), False, "a page"),
        ((b"origin", b"http://evil.example"), False, "a page that says who it is"),
        ((b"host", b"evil.example"), False, "a page under a name of its own"),
    ],
)
def test_the_fast_path_learns_no_head_of_a_page(
    tmp_path: Path, more: tuple[bytes, bytes], known: bool, why: str
) -> None:
    nodes: dict[str, Worker] = {}
    worker = nodes["n"] = Worker(tmp_path, "n", nodes)
    worker.publish(["n"], {0: ["n"]})
    worker.hold(0, page())
    fast: Any = worker.fast_path()
    fast.pages = guard()
    head = [(b"host", b"localhost"), (b"content-length", b"2"), more]
    assert (fast.classify(b"/query", head) is not None) is known, why

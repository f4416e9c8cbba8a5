"""Ports: free as asked, or the next, said aloud."""

import socket
from collections.abc import Iterator

import pytest

from standpipe.errors import PortInUse
from standpipe.local.cluster import ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        yield taken


def test_a_port_that_somebody_listens_on_is_not_free(listener: socket.socket) -> None:
    assert not ports.is_free(listener.getsockname()[1])


def test_broker_takes_the_next_free_port_and_says_so(listener: socket.socket) -> None:
    said: list[str] = []
    wanted = listener.getsockname()[1]
    found = ports.broker_port(wanted, said.append)
    assert found > wanted
    assert said == [f"port {wanted} is in use: Kafka takes {found}"]


def test_nodes_are_ten_ports_apart_and_use_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the first node's four ports is taken: it moves as a whole."""
    monkeypatch.setattr(ports, "is_free", lambda port: port != 8091)
    said: list[str] = []
    found = ports.node_ports(8088, 2, said.append)
    assert [node.public for node in found] == [8098, 8108]
    assert (found[0].internal, found[0].peer) == (8099, 8101)
    assert said == ["port 8088 is in use: node-1 takes 8098"]


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(PortInUse, match="no free port for Kafka from 9092 up"):
        ports.broker_port(9092, print)


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes bind their ports long after they were chosen: two of a cluster had the same."""
    low = ports.any_port()
    monkeypatch.setattr(ports, "ANY", range(low, low + 2))
    monkeypatch.setattr(ports, "is_free", lambda port: True)
    assert ports.any_port() == low + 1
    with pytest.raises(PortInUse, match="no free port was found"):
        ports.any_port()

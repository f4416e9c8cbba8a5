"""Ports: free as asked, or the next, said aloud."""

import socket
from collections.abc import Iterator

import pytest

from standpipe.local import ports


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


def test_nodes_are_ten_ports_apart_and_use_four(listener: socket.socket) -> None:
    """One of the first node's four ports is taken: it moves as a whole."""
    said: list[str] = []
    wanted = listener.getsockname()[1] - 3
    found = ports.node_ports(wanted, 2, said.append)
    assert found[0].public == wanted + 10
    assert found[1].public >= found[0].public + 10
    assert (found[0].internal, found[0].peer) == (wanted + 11, wanted + 13)
    assert len(said) >= 1

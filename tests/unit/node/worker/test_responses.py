"""Which error a client is shown for one that nobody foresaw."""

from __future__ import annotations

import errno

import pytest

from standpipe.errors import NotReady, ServerError
from standpipe.node.worker.responses import NodeExhausted, as_standpipe_error, error_response


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC])
def test_a_node_that_has_nothing_left_sends_clients_to_another(number: int) -> None:
    """A worker without file descriptors answered 500, which no client tries elsewhere."""
    error = as_standpipe_error(OSError(number, "no more of it", "/a/place/of/this/node"))
    assert isinstance(error, NodeExhausted)
    assert errno.errorcode[number] in error.message
    assert "/a/place" not in error.message
    response = error_response(error)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), OSError("x"), ValueError("x")])
def test_all_others_are_errors_of_the_server(error: Exception) -> None:
    assert type(as_standpipe_error(error)) is ServerError


def test_ours_are_shown_as_they_are() -> None:
    ours = NotReady("not yet")
    assert as_standpipe_error(ours) is ours

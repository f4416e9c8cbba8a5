"""A rack is killed and comes back, on hosts of its own (`tests.hosts.racks`). `make stories`."""

from __future__ import annotations

import pytest
from tests.e2e.test_hosts import run_story
from tests.hosts.network import is_possible


@pytest.mark.skipif(not is_possible(), reason="network namespaces are not permitted here")
def test_a_rack_is_killed_and_comes_back() -> None:
    run_story("racks", "with forced awareness of racks and without")

"""A response of any instant: the bytes that the whole layout has then."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.node.workers import USERS, page

from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.literal_lookup import response
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import NO_BATCH, BatchId, Offset, ReplicaStatus
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.request.answer import freshness_of, header_lines, render_rows
from standpipe.node.worker.request.dated_response import DatedResponse
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

BOOT_MS: Final = 5_000_000
UNIX_MS: Final = 1_764_000_000_000
META: Final = StoreMeta(identity=StoreIdentity(table_id="T1", generation=1, partition=0))
#: instants that a page or a meta names: none, past, now, future
INSTANTS = st.sampled_from([0, 1, BOOT_MS - 7, BOOT_MS, BOOT_MS + 999, BOOT_MS + 9_999])
SCHEMA: Final = '`ID "\\` STRING KEY, `query_1111111111111` BIGINT'


def plan() -> PullPlan:
    names, types = ("ID", "query_1111111111111"), ("STRING", "BIGINT")
    return PullPlan(
        source=USERS, keys=(("a",),), schema=SCHEMA, column_names=names, column_types=types
    )


def laid_out(
    form: Form, status: ReplicaStatus, meta: StoreMeta, boot_ms: int, unix_ms: int
) -> tuple[bytes, DatedResponse]:
    """The whole response, as the other steps make it, and the one that is dated."""
    head = RequestFormat(form).head
    fresh = freshness_of(
        status,
        meta,
        reported_end=Offset(-1),
        served_by="node-1",
        role="active",
        boot_ms=boot_ms,
        unix_ms=unix_ms,
    )
    body = render_rows(form, plan(), (b'["a",1]',), unix_ms)
    whole = b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), header_lines(fresh), body)
    return whole, DatedResponse.of(head, form, plan(), status=status, meta=meta, fresh=fresh)


@pytest.mark.parametrize("form", list(Form))
@given(
    confirmed=INSTANTS,
    source=INSTANTS,
    instant=st.sampled_from([0, 1, UNIX_MS - 5, UNIX_MS + 5]),
    end=st.sampled_from([-1, 0, 120]),
    batch=st.sampled_from([NO_BATCH, 7]),
    at=st.lists(
        st.tuples(
            st.sampled_from([0, 1, BOOT_MS, BOOT_MS + 1, BOOT_MS + 20_000]),
            st.sampled_from([0, 999, UNIX_MS, UNIX_MS + 1, 10**13]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_it_is_what_the_whole_layout_would_be(
    form: Form,
    confirmed: int,
    source: int,
    instant: int,
    end: int,
    batch: int,
    at: list[tuple[int, int]],
) -> None:
    """At any instant, whichever it was cut at: lags that are unknown then, and clocks that jump."""
    status = replace(
        page(100, end), confirmed_boot_ms=confirmed, source_boot_ms=source, batch=BatchId(batch)
    )
    meta = replace(META, position=Offset(100), batch=BatchId(batch), source_instant_ms=instant)
    _, dated = laid_out(form, status, meta, *at[0])
    key, stored = store_key(("a",), ("STRING",)), pack_row(b"[1]", 5)
    for boot_ms, unix_ms in at:
        whole, _ = laid_out(form, status, meta, boot_ms, unix_ms)
        assert response(dated.at(boot_ms, unix_ms), key, stored) == whole

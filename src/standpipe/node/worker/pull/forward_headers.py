"""The headers of a forwarded read, both ways: written by the sender, read by the target. Pure.

A forward carries the client's own body. Its headers say what the body does not: which partition of
which table is wanted, how long the sender waits, and by which map and which committed end it
judges. `RequestFormat` is all that the head of a request says about its answer; the fast path of
`adapters.http.server` keeps one for each distinct head.

Not here: how the target uses them (`node.worker.pull.forward_checks`), the connection
(`node.worker.pull.forward`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from standpipe.adapters.http.server import Headers
from standpipe.control.routing.session import Stamp
from standpipe.data.replica.barrier import Barrier
from standpipe.errors import BadRequest
from standpipe.freshness import END_HEADER
from standpipe.model import Offset
from standpipe.node.worker.request.head import Form, form_of, header

FORWARDED_HEADER: Final = "standpipe-forwarded"
#: ms that the sender still waits
DEADLINE_HEADER: Final = "standpipe-deadline-ms"
PARTITION_HEADER: Final = "standpipe-partition"
#: `<table id>-<generation>`: an earlier incarnation of a table must not answer
TABLE_HEADER: Final = "standpipe-table"
#: of the sender's map
EPOCH_HEADER: Final = "standpipe-assignment-epoch"
#: set by the sender of a scan: it wants an interim response every so many ms while the scan runs
WORKING_HEADER: Final = "standpipe-working-ms"
#: set by the sender of a read at a level, if the target is to wait until it covers the token, the
#: barrier or the wanted batch; without it, the target refuses at once
WAITS_HEADER: Final = "standpipe-waits"
#: at level `snapshot`: the batch that another part of the answer shows, and its lease epoch
WANTED_HEADER: Final = "standpipe-wanted-batch"
#: at level `linearizable`: what the target must have (`Barrier.text`)
BARRIER_HEADER: Final = "standpipe-barrier"
#: with it: Kafka's id of the progress topic that the barrier is in, if the sender knows it
PROGRESS_TOPIC_HEADER: Final = "standpipe-progress-topic"
#: Partitions that are kept of the head of a pack; when there are more, all are dropped.
PARTS_MAX: Final = 1_024
#: how many interim responses fit into the time after which silence counts as a failure
WORKING_SIGNS: Final = 4


@dataclass(kw_only=True)
class ForwardedRead:
    """A read of one partition as the sender forwards it."""

    body: bytes  # the client's own
    partition: int
    table: str  # `<table id>-<generation>`
    timeout_ms: int
    assignment_epoch: int = 0
    #: the target counts its lag against it too; None: the read is unbounded, or no end is known
    committed_end: Offset | None = None
    #: of a read that may take long: it fails after this long without a sign of work; else None
    silence_ms: int | None = None
    #: the target is to wait until its rows are as new as the level wants
    waits: bool = False
    barrier: Barrier | None = None
    wanted: Stamp | None = None

    def headers(self) -> dict[str, str]:
        """The headers of the forward; `ForwardHeaders.read` is the inverse."""
        headers = {
            "accept": Form.LINES.value.decode(),
            FORWARDED_HEADER: "1",
            DEADLINE_HEADER: str(self.timeout_ms),
            PARTITION_HEADER: str(self.partition),
            TABLE_HEADER: self.table,
            EPOCH_HEADER: str(self.assignment_epoch),
        }
        if self.committed_end is not None:
            headers[END_HEADER] = str(self.committed_end)
        if self.silence_ms is not None:
            headers[WORKING_HEADER] = str(max(1, self.silence_ms // WORKING_SIGNS))
        if self.waits:
            headers[WAITS_HEADER] = "1"
        if self.barrier is not None:
            headers[BARRIER_HEADER] = self.barrier.text()
            if self.barrier.topic_id:
                headers[PROGRESS_TOPIC_HEADER] = self.barrier.topic_id
        if self.wanted is not None:
            headers[WANTED_HEADER] = f"{self.wanted.batch},{self.wanted.epoch}"
        return headers


@dataclass(frozen=True, kw_only=True)
class ForwardHeaders:
    """What the sender of a forward says besides the query. The target answers it or refuses it."""

    partition: int | None = None
    table: str = ""  # `<table id>-<generation>`; empty: not said
    timeout_ms: int | None = None  # what is left of the client's time limit
    assignment_epoch: int | None = None  # of the sender's map
    committed_end: Offset | None = None  # furthest that the sender knows, where a lag is bounded
    working_ms: int | None = None  # how often its sender wants a sign of work
    waits: bool = False  # until the rows are as new as the level wants
    barrier: Barrier | None = None  # of a read at level `linearizable`
    wanted: Stamp | None = None  # of a read at level `snapshot`; None: any batch

    @property
    def is_usual(self) -> bool:
        """Whether it wants the rows of one partition as they are, whatever their age."""
        is_timely = self.timeout_ms is None or self.timeout_ms > 0
        wants_more = self.waits or not (
            self.committed_end is self.working_ms is self.barrier is self.wanted is None
        )
        return is_timely and self.partition is not None and self.table != "" and not wants_more

    @classmethod
    def read(cls, headers: Headers) -> ForwardHeaders:
        """The headers of a request. Raises BadRequest when a number is malformed."""
        try:
            partition = header(headers, PARTITION_HEADER)
            deadline = header(headers, DEADLINE_HEADER)
            epoch, end = header(headers, EPOCH_HEADER), header(headers, END_HEADER)
            working, barrier = header(headers, WORKING_HEADER), header(headers, BARRIER_HEADER)
            topic_id, wanted = (
                header(headers, PROGRESS_TOPIC_HEADER),
                header(headers, WANTED_HEADER),
            )
            return cls(
                partition=int(partition) if partition else None,
                table=header(headers, TABLE_HEADER),
                timeout_ms=int(deadline) if deadline else None,
                assignment_epoch=int(epoch) if epoch else None,
                committed_end=Offset(int(end)) if end else None,
                working_ms=int(working) if working else None,
                waits=bool(header(headers, WAITS_HEADER)),
                barrier=Barrier.parse(barrier, topic_id) if barrier else None,
                wanted=_stamp(wanted) if wanted else None,
            )
        except ValueError as error:
            raise BadRequest(f"a header of the forward is malformed: {error}") from error


def _stamp(text: str) -> Stamp:
    """Raises ValueError."""
    batch, epoch = map(int, text.split(","))
    if batch < 0 or epoch < 0:
        raise ValueError(f"no batch: {text!r}")
    return Stamp(batch, epoch)


@dataclass(frozen=True)
class RequestFormat:
    """What the head of a pull query says: the layout it wants, and the headers of a forward."""

    form: Form
    #: None: a client asks, and any replica may answer
    forward: ForwardHeaders | None = None
    #: a node asks for the answers to a pack, each without its status line
    is_pack: bool = False
    #: the response's head up to the freshness headers
    head: bytes = field(init=False)
    #: equal bodies behind equal marks have equal answers, of any partition that a forward wants
    mark: bytes = field(init=False)
    #: a client asks, or it is a forward that wants nothing but the rows as they are
    is_usual: bool = field(init=False)
    #: of a pack: what the lookups of each partition are
    _parts: dict[int, RequestFormat] = field(
        default_factory=dict[int, "RequestFormat"], init=False, compare=False
    )

    def __post_init__(self) -> None:
        line = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n" % self.form.value
        forward = self.forward
        mark = line if forward is None else b"%b%b\n" % (line, forward.table.encode())
        if self.is_pack:
            line, mark = b"", b"pack\n%b" % mark
        object.__setattr__(self, "head", line)
        object.__setattr__(self, "mark", mark)
        is_usual = not self.is_whole_pack if forward is None else forward.is_usual
        object.__setattr__(self, "is_usual", is_usual)

    @classmethod
    def read(
        cls, path: bytes, headers: Headers, *, is_peer: bool, is_pack: bool = False
    ) -> RequestFormat | None:
        """From a request's head; None: it accepts no layout that exists. Raises BadRequest.

        `is_peer`: the request came over the peer listener. Only there may a request be a forward.
        """
        form = form_of(path, header(headers, "accept"))
        if form is None:
            return None
        is_forward = is_peer and bool(header(headers, FORWARDED_HEADER))
        return cls(form, ForwardHeaders.read(headers) if is_forward else None, is_pack)

    @property
    def is_whole_pack(self) -> bool:
        """Whether it is of a pack, and not of the lookups of a partition in it."""
        return self.is_pack and (self.forward is None or self.forward.partition is None)

    def part(self, partition: int) -> RequestFormat:
        """Of a pack: that of its lookups in one partition."""
        found = self._parts.get(partition)
        if found is None:
            if len(self._parts) >= PARTS_MAX:
                self._parts.clear()
            forward = replace(self.forward or ForwardHeaders(), partition=partition)
            found = self._parts[partition] = replace(self, forward=forward)
        return found

"""Copies of this node's stores for peers that have none yet: the donor's side, a part of control.

    POST /store-copy {table_id, generation, partition, wait_ms}  make one (or name a recent one)
         200 the offer; 202 it is being made, ask again; 503 there is nothing to copy, or no room
    GET  /store-copy?copy_id=…&offset=…                          a piece, at most PIECE_BYTES

A separate process makes a copy (`adapters.store.copy`). It stays in `copies/` until no receiver has
asked for it for a while; an interrupted transfer continues where it stopped. Copies are made one at
a time, and none that could fill the disk. No copy survives a restart. A large store takes minutes:
within `wait_ms` the receiver gets the answer that it is being made, so it is not silence.

Not here: which peer is asked (`data.replica.store_copy`), the receiving side
(`node.store_transfer.receiver`).
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.http.internal import Call, Handler, Reply, json_reply
from standpipe.adapters.store.copy import Copied
from standpipe.adapters.store.environment import DATA_FILE
from standpipe.adapters.store.folders import store_path
from standpipe.data.replica.positions import StoreIdentity
from standpipe.data.replica.store_copy import CopyOffer
from standpipe.errors import NotFound, NotReady
from standpipe.model import ReplicaId
from standpipe.node.configuration import NodePaths

PATH: Final = "/store-copy"
PIECE_BYTES: Final = 1 << 20
KEEP_MS: Final = 120_000  # after the last piece that was asked for
FRESH_MS: Final = 10_000  # how old a copy may be to serve another request
SWEEP_S: Final = 10.0
#: The copy, and the receiver's own growth if it shares the disk.
ROOM: Final = 2
#: How long an answer waits for the copy if the request does not say: as before 202 existed.
WAIT_MS: Final = 600_000

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class StoreCopyRequest(msgspec.Struct):
    """Body of POST /store-copy."""

    table_id: str
    generation: int
    partition: int
    wait_ms: int = WAIT_MS

    @property
    def replica_id(self) -> ReplicaId:
        """The replica whose store is wanted."""
        return ReplicaId(self.table_id, self.generation, self.partition)


class CopyPieceRequest(msgspec.Struct):
    """Parameters of GET /store-copy."""

    copy_id: str
    offset: int = 0


@dataclass
class _Kept:
    offer: CopyOffer
    replica_id: ReplicaId
    file: Path
    made_ms: int
    used_ms: int


class StoreCopies:
    """One node's copies. `routes()` for the internal listener, `run()` sweeps."""

    def __init__(self, paths: NodePaths, clock: Clock | None = None) -> None:
        self._state, self._folder = paths.state, paths.copies
        self._clock = clock or Clock()
        self._kept: dict[str, _Kept] = {}
        #: in progress, or failed and not answered yet
        self._making: dict[ReplicaId, asyncio.Task[_Kept]] = {}
        self._turn = asyncio.Lock()
        shutil.rmtree(self._folder, ignore_errors=True)

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        """{(method, path): handler} for the internal listener."""
        return {("POST", PATH): self._make, ("GET", PATH): self._piece}

    async def run(self) -> NoReturn:
        """Remove copies that receivers no longer ask for."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for making in [each for each in self._making.values() if each.done()]:
                self._forget(making)  # its receiver is gone
            now_ms = self._clock.boot_ms()
            for kept in [k for k in self._kept.values() if now_ms - k.used_ms > KEEP_MS]:
                del self._kept[kept.offer.copy_id]
                await asyncio.to_thread(shutil.rmtree, kept.file.parent, ignore_errors=True)

    async def _make(self, call: Call) -> Reply:
        asked = call.json(StoreCopyRequest)
        replica_id = asked.replica_id
        making = self._making.get(replica_id)
        if making is None:
            now_ms = self._clock.boot_ms()
            for kept in self._kept.values():
                if kept.replica_id == replica_id and now_ms - kept.made_ms < FRESH_MS:
                    return json_reply(kept.offer)
            making = asyncio.create_task(self._in_turn(replica_id))
            self._making[replica_id] = making
        # a receiver that goes away does not cancel it: the next one gets it
        done, _ = await asyncio.wait({making}, timeout=asked.wait_ms / 1000)
        if not done:
            return json_reply({"is_making": True}, HTTPStatus.ACCEPTED)
        self._forget(making)
        return json_reply(making.result().offer)

    def _forget(self, making: asyncio.Task[_Kept]) -> None:
        for replica_id in [each for each, known in self._making.items() if known is making]:
            del self._making[replica_id]
        if not making.cancelled() and (error := making.exception()) is not None:
            _log.info("no copy for a peer", why=str(error))

    async def _in_turn(self, replica_id: ReplicaId) -> _Kept:
        async with self._turn:
            return await self._copy(replica_id)

    async def _copy(self, replica_id: ReplicaId) -> _Kept:
        """Raises NotReady if there is nothing to copy, or no room for it."""
        source = store_path(self._state, replica_id)
        copy_id = secrets.token_hex(8)
        target = self._folder / copy_id
        self._folder.mkdir(parents=True, exist_ok=True)
        self._check_room(source)
        command = [sys.executable, "-m", "standpipe.adapters.store.copy", str(source), str(target)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, error = await process.communicate()
        if process.returncode != 0:
            shutil.rmtree(target, ignore_errors=True)
            raise NotReady(f"no copy of {source.name}: {error.decode(errors='replace').strip()}")
        copied = msgspec.json.decode(output, type=Copied)
        meta, now_ms = copied.meta, self._clock.boot_ms()
        if meta.identity != StoreIdentity.of(replica_id) or meta.whole_at > meta.position:
            shutil.rmtree(target, ignore_errors=True)
            raise NotReady(f"the store of {source} is incomplete")
        offer = CopyOffer(
            copy_id=copy_id,
            size_bytes=copied.size_bytes,
            checksum=copied.checksum,
            position=meta.position,
            batch=meta.batch,
        )
        self._kept[copy_id] = _Kept(offer, replica_id, target / DATA_FILE, now_ms, now_ms)
        _log.info("store copied for a peer", store=str(source), size_bytes=offer.size_bytes)
        return self._kept[copy_id]

    def _check_room(self, source: Path) -> None:
        try:
            size = (source / DATA_FILE).stat().st_size
        except FileNotFoundError as error:
            raise NotReady("the replica has no store here") from error
        if shutil.disk_usage(self._folder).free < ROOM * size:
            raise NotReady(f"no room for a copy of {source}: {ROOM} x {size} bytes are needed")

    async def _piece(self, call: Call) -> Reply:
        wanted = call.query(CopyPieceRequest)
        kept = self._kept.get(wanted.copy_id)
        if kept is None:
            raise NotFound(f"there is no copy {wanted.copy_id} (or no longer)")
        kept.used_ms = self._clock.boot_ms()
        piece = await asyncio.to_thread(_read, kept.file, wanted.offset)
        return Reply(200, {"content-type": "application/octet-stream"}, piece)


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)

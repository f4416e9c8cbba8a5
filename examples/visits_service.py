"""A FastAPI service of rows of VISITS: `uvicorn --app-dir examples visits_service:app`.

GET /visits/ada            one row, and how fresh it is
GET /visits?user=ada&user=bob   many rows, in about the time of one
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse

import standpipe
from standpipe.client import AsyncClient, NodesUnreachable, ServerRefused

NODES = os.environ.get("STANDPIPE_NODES", "localhost:8088")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # one client for the life of the service: it keeps connections to every node
    async with standpipe.connect_async(NODES, timeout_s=2.0) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(NodesUnreachable)
@app.exception_handler(ServerRefused)
async def not_now(_: Request, error: Exception) -> JSONResponse:
    """No node answers, or none has the table yet: worth another try."""
    return JSONResponse({"detail": str(error)}, 503)


def client_of(request: Request) -> AsyncClient:
    return request.app.state.client


@app.get("/visits/{user}")
async def visits(user: str, request: Request) -> dict[str, Any]:
    row = await client_of(request).get("VISITS", user_id=user)
    if row is None:
        raise HTTPException(404, f"{user} has not visited")
    fresh = row.freshness
    return {**row, "served_by": fresh.served_by, "records_behind": fresh.offset_lag}


@app.get("/visits")
async def many_visits(user: Annotated[list[str], Query()], request: Request) -> list[Any]:
    rows = await client_of(request).get_many("VISITS", user)
    return [None if row is None else dict(row) for row in rows]

"""A closed loop by wrk: CONNECTIONS connections, each of which asks as soon as it has its answer.

A request that failed ends the benchmark: a refusal is a fast answer. wrk counts statuses from 400
on as failures, but not a refusal with status 200, nor an answer without rows. So the answers' mean
size is kept beside their number, for callers that know what it must be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.load import http
from bench.load.machine import on_load_core, processor_seconds

CONNECTIONS = 16

#: requests are built ahead of the clock; each takes the next of a shuffled list
_LUA = """
local requests = {}
local at = 0
function init(args)
  for line in io.lines(%(lines)s) do
    requests[#requests + 1] = %(request)s
  end
end
function request()
  at = at + 1
  if at > #requests then at = 1 end
  return requests[at]
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99), summary.bytes))
end
"""


class RequestsFailed(RuntimeError):
    """Some requests of a load were not answered, or refused."""


@dataclass(frozen=True)
class Run:
    """One server in one round. `errors` is 0: a run with others is no run."""

    requests_per_second: float
    errors: int
    p50_us: float
    p99_us: float
    server_us_per_request: float  # processor time
    answer_bytes: float = 0  # the mean, heads included; 0: another generator's, which are not read

    def as_json(self) -> dict[str, float]:
        """For a result file."""
        return {
            name: round(value, 2) for name, value in vars(self).items() if name != "answer_bytes"
        }


def write_script(
    path: Path,
    bodies: Iterable[bytes],
    route: str = "/query",
    headers: Mapping[str, str] | None = None,
) -> Path:
    """A script that posts these bodies, which have no line ends."""
    lines = path.with_suffix(".lines")
    lines.write_bytes(b"".join(body + b"\n" for body in bodies))
    named = {"Content-Type": http.KSQL, **(headers or {})}
    table = "{" + ", ".join(f"[{json.dumps(k)}]={json.dumps(v)}" for k, v in named.items()) + "}"
    request = f'wrk.format("POST", {json.dumps(route)}, {table}, line)'
    path.write_text(_LUA % {"lines": json.dumps(str(lines)), "request": request})
    return path


def write_get_script(path: Path, routes: Iterable[str]) -> Path:
    """A script that gets these."""
    lines = path.with_suffix(".lines")
    lines.write_text("".join(f"{route}\n" for route in routes))
    request = 'wrk.format("GET", line)'
    path.write_text(_LUA % {"lines": json.dumps(str(lines)), "request": request})
    return path


def run(
    processes: int | tuple[int, ...],
    port: int,
    script: Path,
    seconds: int,
    *,
    tls: bool = False,
    connections: int = CONNECTIONS,
) -> Run:
    """Load on the other core. `processes`: of the server, whose processor time is counted. Raises
    RequestsFailed."""
    counted = processes if isinstance(processes, tuple) else (processes,)
    scheme = "https" if tls else "http"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)]
    before = processor_seconds(*counted)
    output = on_load_core([*command, f"{scheme}://127.0.0.1:{port}"])
    spent = processor_seconds(*counted) - before
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    assert found is not None, output
    requests, duration_us, errors, p50, p99, size = map(int, found.groups())
    if errors or not requests:
        raise RequestsFailed(f"{script.stem}: {errors} of {requests} requests failed under load")
    return Run(
        requests_per_second=requests / duration_us * 1e6,
        errors=errors,
        p50_us=p50,
        p99_us=p99,
        server_us_per_request=spent / requests * 1e6,
        answer_bytes=size / requests,
    )

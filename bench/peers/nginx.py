"""nginx with a fixed answer: what HTTP over loopback costs before anything is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load.machine import free_port, server, wait_for_port

_CONFIGURATION = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  default_type application/json;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 '{answer}'; }}
  }}
}}
"""


class Nginx(NamedTuple):
    """A server with one answer."""

    pid: int
    port: int


@contextmanager
def nginx(folder: Path, answer: str) -> Iterator[Nginx]:
    """A server that answers everything with `answer`, which has no `'`, `$` or backslash."""
    assert not set(answer) & set("'$\\"), answer
    folder.mkdir()
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(_CONFIGURATION.format(folder=folder, port=port, answer=answer))
    command = ["nginx", "-c", str(file), "-e", str(folder / "nginx.log"), "-p", str(folder)]
    with server(command, folder / "nginx.out") as child:
        wait_for_port(port)
        yield Nginx(child.pid, port)

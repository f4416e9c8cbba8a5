"""The demo's handle of the reader process: starts it, sends it probes, collects its samples.

Not here: the reader itself (`reader.py`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from standpipe.errors import ServerError
from standpipe.local.demo.questions import Probe, ProbeSample, ReaderPlan, ReaderReport, ReadSample

START_S_MAX = 30.0
END_S_MAX = 40.0  # a probe gives up after 30 s


class ReaderProcess:
    """The reader process. `reads` and `probes` grow while it runs; create it in a thread that
    stays alive."""

    def __init__(self, plan: ReaderPlan, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        plan_file = folder / "reader-plan"
        plan_file.write_bytes(msgspec.msgpack.encode(plan))
        self.reads: list[ReadSample] = []
        self.probes: list[ProbeSample] = []
        self._lock = threading.Lock()
        self._log = folder / "reader.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "standpipe.local.demo.reader", str(plan_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._is_asking = threading.Event()
        self._collector = threading.Thread(target=self._collect, name="reader", daemon=True)
        self._collector.start()

    def wait_until_asking(self) -> None:
        """Wait for its first report, which shows that it reads. Raises ServerError on time-out."""
        if not self._is_asking.wait(START_S_MAX):
            self.kill()
            self.finish()

    def tell(self, probe: Probe) -> None:
        """Have the reader wait for an event. From any thread; does nothing once it is closed."""
        with self._lock:
            pipe = self._process.stdin
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):  # it died: `finish` reports why
                    pipe.write(msgspec.json.encode(probe) + b"\n")
                    pipe.flush()

    def finish(self) -> None:
        """Stop new reads, and wait for those in flight. Raises ServerError if the reader has
        died."""
        with self._lock:
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        try:
            status = self._process.wait(END_S_MAX)
        finally:
            self.kill()
        self._collector.join(5.0)
        if status != 0:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise ServerError(f"the demo's reader ended with status {status}:\n{tail}")

    def kill(self) -> None:
        """End the process at once."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _collect(self) -> None:
        decode = msgspec.json.Decoder(ReaderReport).decode
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = decode(line)
            self._is_asking.set()
            self.reads += report.reads
            self.probes += report.probes

"""The output of a child process: kept in a log file of bounded size, and shown with its name in front."""

import os
import queue
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TextIO

_MAX_LOG_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 65536
_CHUNKS = 64  # then others have their turn


class Echo:
    """Lines on a terminal or pipe that may stop reading: then lines are dropped, and nobody waits."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._queue: queue.Queue[str | threading.Event] = queue.Queue(maxsize=2000)
        threading.Thread(target=self._write, name="echo", daemon=True).start()

    def say(self, part: str, line: str) -> None:
        """Show `line` of `part` soon, if the reader keeps up."""
        with suppress(queue.Full):
            self._queue.put_nowait(f"{part:<10} {line}\n")

    def flush(self, timeout_s: float = 1.0) -> None:
        """Wait until what was said so far is written, at most `timeout_s`."""
        written = threading.Event()
        with suppress(queue.Full):
            self._queue.put(written, timeout=timeout_s)
            written.wait(timeout_s)

    def _write(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            with suppress(OSError, ValueError):  # nobody reads any more: the log files still have it
                self._stream.write(item)
                self._stream.flush()


class Journal:
    """Copies one child's output to its log file, whole lines to `echo`."""

    def __init__(self, name: str, log: Path, echo: Echo) -> None:
        self._name, self._log, self._echo = name, log, echo
        self._partial = b""
        self._file = self._open()
        self._failing = False

    def read(self, pipe: int) -> bool:
        """Take some of what `pipe` (non-blocking) has now; False once it is closed at the other end."""
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(pipe, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._take(chunk)
        return True

    def end_line(self) -> None:
        """Finish what a process that died in the middle of a line wrote."""
        if self._partial:
            self._take(b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _take(self, chunk: bytes) -> None:
        self._keep(chunk)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        self._partial = self._partial[-_CHUNK_BYTES:]
        for line in lines:
            self._echo.say(self._name, line.decode(errors="replace").rstrip())

    def _keep(self, chunk: bytes) -> None:
        """`chunk` is in the file, if the disk takes it: a full one must not end those who write."""
        try:
            self._file.write(chunk)
            if self._file.tell() > _MAX_LOG_BYTES:
                self._turn_over()
        except OSError as error:
            if not self._failing:
                self._echo.say(self._name, f"the log {self._log} can't be written: {error.strerror}")
            self._failing = True
        else:
            self._failing = False

    def _turn_over(self) -> None:
        with suppress(FileNotFoundError):  # somebody removed it
            self._log.replace(self._log.with_suffix(".log.1"))
        full, self._file = self._file, self._open()
        full.close()

    def _open(self) -> BinaryIO:
        return os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)

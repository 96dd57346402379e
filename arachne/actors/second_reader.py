"""The one subprocess in which the second reader lives, and how stage subprocesses ask it."""

import logging
import multiprocessing
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Event, Thread

import numpy as np
from pebble import ProcessExpired, ProcessPool

from arachne import logs
from arachne.actors.confinement import return_free_memory
from arachne.actors.stage_process import prepare
from arachne.actors.steady_pool import SteadyPool
from arachne.stages.arrays import Box, Gray
from arachne.stages.rapid import SecondReader, SecondReaderLost, SeenLine, look

log = logging.getLogger(__name__)
MEMORY_BYTES = 1 << 30  # besides what it has before it loads the models
LOOK_LIMIT_S = 20.0
ANSWER_LIMIT_S = 45.0  # its own limit, and that of those who came before
MAX_LOOKS = 1000  # then it is replaced, whatever it may have leaked
Answer = tuple[SeenLine, ...] | str


@dataclass(frozen=True)
class Picture:
    """Where an open file has a gray picture's bytes, its height and width, and the boxes that are known."""

    path: str
    shape: tuple[int, int]
    known: tuple[Box, ...]


@dataclass(frozen=True)
class RemoteReader:
    """Asks the second reader of this process's worker; goes to stage subprocesses."""

    address: str
    key: bytes

    def __call__(self, gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
        """The lines of uint8 (H, W) that are not known.

        Raises:
            SecondReaderLost: it gave no answer.
        """
        handle = os.memfd_create("arachne-picture")
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(gray.tobytes())
            shape = gray.shape[0], gray.shape[1]
            answer = self._ask(Picture(f"/proc/{os.getpid()}/fd/{handle}", shape, tuple(known)))
        except (OSError, EOFError, AuthenticationError) as error:
            raise SecondReaderLost(f"it can't be asked ({type(error).__name__})") from error
        finally:
            os.close(handle)
        if isinstance(answer, str):
            raise SecondReaderLost(answer)
        return answer

    def _ask(self, picture: Picture) -> Answer:
        with Client(self.address, "AF_UNIX", authkey=self.key) as connection:
            connection.send(picture)
            if not connection.poll(ANSWER_LIMIT_S):
                return f"no answer within {ANSWER_LIMIT_S:.0f} s"
            answer: Answer = connection.recv()
            return answer


class SecondReaderPool:
    """A pool of one, replaced when it dies or hangs; answers whoever has the key."""

    def __init__(self, reader: SecondReader) -> None:
        self._reader = reader
        self._pool = self._start()

    def answer(self, picture: Picture) -> Answer:
        """The lines, or why there are none."""
        try:
            future = self._pool.schedule(look_at, args=(self._reader, picture), timeout=LOOK_LIMIT_S)
            lines: tuple[SeenLine, ...] = future.result()
        except SecondReaderLost as error:
            return str(error)
        except ProcessExpired as error:
            return f"its process died (status {error.exitcode})"
        except TimeoutError:
            return f"it took over {LOOK_LIMIT_S:.0f} s"
        except Exception as error:  # whatever it trips over, the image keeps its first reading
            log.warning("the second reader failed: %s", error)
            return f"it failed ({type(error).__name__})"
        return lines

    def stop(self) -> None:
        """End its process at once."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def mend(self) -> None:
        """Replace the pool where it broke. The calling thread must outlive the pool: its death ends the child."""
        if self._pool.active:
            return
        log.warning("the second reader's pool broke and is replaced")
        self.stop()
        self._pool = self._start()

    def _start(self) -> ProcessPool:
        pool = SteadyPool(
            max_workers=1,
            max_tasks=MAX_LOOKS,
            initializer=prepare,
            initargs=(os.getpid(), MEMORY_BYTES, self._reader, logs.told()),
            context=multiprocessing.get_context("spawn"),
        )
        assert pool.active  # starts it
        return pool


def look_at(reader: SecondReader, picture: Picture) -> tuple[SeenLine, ...]:
    """The picture's lines; runs in the second reader's process.

    Raises:
        SecondReaderLost: there is no memory for it, or the reader failed.
    """
    try:
        gray = np.frombuffer(Path(picture.path).read_bytes(), np.uint8).reshape(picture.shape)
        return reader(gray, picture.known)
    except MemoryError:
        raise SecondReaderLost("the picture needs more memory than it may take") from None
    finally:
        return_free_memory()


@contextmanager
def second_reader(reader: SecondReader = look) -> Iterator[RemoteReader]:
    """What stage subprocesses ask; meanwhile the second reader's process is there."""
    # An abstract address leaves no file behind and needs no folder; the key keeps everyone else out.
    address, key = f"\0arachne-second-reader-{os.getpid()}-{secrets.token_hex(8)}", secrets.token_bytes(32)
    pool, listener, closing = SecondReaderPool(reader), Listener(address, "AF_UNIX", backlog=64, authkey=key), Event()
    serving = Thread(target=_serve, args=(listener, pool, closing), name="arachne-second-reader", daemon=True)
    serving.start()
    try:
        yield RemoteReader(address, key)
    finally:
        closing.set()
        with socket.socket(socket.AF_UNIX) as knock:  # closing alone would not end the wait for the next
            knock.connect(address)
        serving.join()
        listener.close()
        pool.stop()


def _serve(listener: Listener, pool: SecondReaderPool, closing: Event) -> None:
    while not closing.is_set():
        try:
            connection = listener.accept()
        except AuthenticationError:
            log.warning("somebody without the key asked for the second reader")
        except (EOFError, OSError):
            log.debug("gone before it had said who it is")
        else:
            pool.mend()
            Thread(target=_serve_one, args=(connection, pool), daemon=True).start()


def _serve_one(connection: Connection, pool: SecondReaderPool) -> None:
    with connection:
        try:
            connection.send(pool.answer(connection.recv()))
        except (OSError, EOFError):
            log.debug("whoever asked the second reader is gone")

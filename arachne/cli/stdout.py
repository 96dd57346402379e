"""A standard output that can be lost: closed by whoever reads it, or on a disk that is full."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arachne.errors import OutputLost, SetupError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Stdout(io.FileIO):
    """The process's output. Once it is lost, what is still written goes nowhere: the reason has been told."""

    lost = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.lost = True
            raise OutputLost(
                f"The output can't be written: {error.strerror}. What was not printed yet is lost.",
                is_closed=isinstance(error, BrokenPipeError),
            ) from error


@contextmanager
def checked() -> Iterator[None]:
    """Meanwhile whatever can't be printed raises, and at the end all is printed.

    Raises:
        OutputLost: it can't be printed.
        SetupError: there is no output.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # there is nobody to tell
    if sys.stdout is None:
        raise SetupError("Standard output is closed. Send it to a file, or to /dev/null.")
    if sys.stdout is not sys.__stdout__ or not isinstance(sys.stdout, io.TextIOWrapper):
        yield  # somebody who called us takes it
        return
    former = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(former.fileno(), "wb", closefd=False)),
        encoding=former.encoding,
        errors="backslashreplace" if former.errors == "strict" else former.errors,  # rather than nothing at all
        line_buffering=former.line_buffering,
        write_through=former.write_through,
    )
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        finally:
            sys.stdout = former

"""Files that exist in memory alone: bytes go to subprocesses and back in them, since pipes are slower, and block."""

import os
from collections.abc import Iterable


def hold(*contents: bytes) -> tuple[int, ...]:
    """Handles on files with these contents, to be closed with `release`."""
    handles: list[int] = []
    try:
        for content in contents:
            handles.append(os.memfd_create("arachne"))
            with os.fdopen(os.dup(handles[-1]), "wb") as file:
                file.write(content)
    except BaseException:
        release(handles)
        raise
    return tuple(handles)


def path_of(handle: int) -> str:
    """Where other processes of this user find the file."""
    return f"/proc/{os.getpid()}/fd/{handle}"


def content_of(handle: int) -> bytes:
    """What is in the file."""
    return os.pread(handle, os.fstat(handle).st_size, 0)


def release(handles: Iterable[int]) -> None:
    """Close the files, which are gone then."""
    for handle in handles:
        os.close(handle)

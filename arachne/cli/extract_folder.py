"""Extracted documents, each in a file of its own."""

import errno
import os
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arachne.cli.extract_inputs import Input
from arachne.errors import ArachneError, SetupError
from arachne.schemas.queries import Format

if TYPE_CHECKING:
    from arachne.cli.extract_journal import Journal

_MARK = ".part."
_STEM_BYTES = 230


class Folder:
    """Writes each document as soon as it is there. Inputs of one name get names of their own, in the order given.

    With a journal the names are the same in another run of the command, and files that one wrote are kept.
    """

    def __init__(
        self,
        folder: Path,
        wanted: Format,
        inputs: Sequence[Input],
        *,
        overwrite: bool,
        journal: "Journal | None" = None,
    ) -> None:
        self._folder = folder
        self._format = wanted
        self._read = {one.path.absolute() for one in inputs}
        self._overwrite = overwrite
        self._journal = journal
        self._place = f"{wanted} {'over' if overwrite else 'beside'} {folder.absolute()}"
        self._identities = [one.identify() if journal is not None else None for one in inputs]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):  # told before anything is sent
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._targets = self._choose_all(inputs)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def _choose_all(self, inputs: Sequence[Input]) -> list[Path]:
        """Where each goes: to where it went before, or to a name of its own."""
        kept = {number: name for number in range(len(inputs)) if (name := self._name_of_before(number)) is not None}
        self._remove_drafts(kept.values())
        self._taken = {name.casefold() for name in kept.values()}
        targets = [
            self._folder / kept[number] if number in kept else self._choose(one.stem)
            for number, one in enumerate(inputs)
        ]
        self._note_names(targets, [number for number in range(len(inputs)) if number not in kept])
        return targets

    def has(self, number: int) -> bool:
        """Whether an earlier run of this command wrote it."""
        return self._wrote_before(number) and self._targets[number].is_file()

    def take(self, number: int, one: Input, document: bytes) -> None:
        """Write it, whole or not at all."""
        target = self._targets[number]
        is_ours = self._overwrite or self._wrote_before(number)
        try:
            handle, draft = tempfile.mkstemp(prefix=_draft_prefix(target.name), dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(document)
                Path(draft).chmod(0o666 & ~_umask())
                if self._journal is not None and (image := self._identities[number]) is not None:
                    self._journal.write(self._place, image)
                while not _put(Path(draft), self._targets[number], replacing=is_ours):
                    self._targets[number] = self._choose(one.stem)
                    self._note_names(self._targets, [number])
            finally:
                Path(draft).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(target, error) from error

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """Write nothing."""

    def _name_of_before(self, number: int) -> str | None:
        """What an earlier run of this command called it, if that is free or its own."""
        image = self._identities[number]
        if self._journal is None or image is None:
            return None
        name = self._journal.names.get((self._place, image))
        if name is None or (self._is_kept(self._folder / name) and not self._wrote_before(number)):
            return None
        return name

    def _remove_drafts(self, names: Collection[str]) -> None:
        """Remove what a run that was killed left of these files."""
        prefixes = {_draft_prefix(name) for name in names}
        for path in self._folder.iterdir() if prefixes else ():
            stem, mark, _ = path.name.rpartition(_MARK)
            if mark and stem + mark in prefixes:
                path.unlink(missing_ok=True)

    def _wrote_before(self, number: int) -> bool:
        image = self._identities[number]
        return self._journal is not None and image is not None and (self._place, image) in self._journal.written

    def _note_names(self, targets: Sequence[Path], numbers: Iterable[int]) -> None:
        if self._journal is not None:
            names = {
                image: targets[number].name for number in numbers if (image := self._identities[number]) is not None
            }
            self._journal.name(self._place, names)

    def _choose(self, stem: str) -> Path:
        """A name that no other input of this run has, even where case doesn't count."""
        stem = _shorten(stem)
        number = 1
        while True:
            name = f"{stem}.{self._format}" if number == 1 else f"{stem}-{number}.{self._format}"
            target = self._folder / name
            if name.casefold() not in self._taken and not self._is_kept(target):
                self._taken.add(name.casefold())
                return target
            number += 1

    def _is_kept(self, target: Path) -> bool:
        return target.absolute() in self._read or (target.exists() and not (self._overwrite and target.is_file()))


def _draft_prefix(name: str) -> str:
    return f".{name[:60]}{_MARK}"


def _put(draft: Path, target: Path, *, replacing: bool) -> bool:
    """Whether the draft took its name; without `replacing` it doesn't where another command was faster.

    Raises:
        OSError: it can't be written there.
    """
    if not replacing:
        try:
            target.hardlink_to(draft)
        except FileExistsError:
            return False
        except OSError:  # no hard links on this file system
            if target.exists():
                return False
        else:
            return True
    draft.replace(target)
    return True


def _shorten(stem: str) -> str:
    """The stem, short enough that a number and an ending fit into a file's name of 255 bytes."""
    data = os.fsencode(stem)
    return stem if len(data) <= _STEM_BYTES else data[:_STEM_BYTES].decode("utf-8", "ignore")


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> SetupError:
    return SetupError(f"{path} can't be written: {error.strerror}. Choose another --out.")

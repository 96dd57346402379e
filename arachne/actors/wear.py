"""When a stage subprocess is worn out: after so many images, or once it keeps too much memory."""

from typing import Self

from arachne.actors.confinement import resident_bytes, return_free_memory


class Wear(int):
    """The images after which a subprocess ends, or earlier: after the one that leaves it with over `max_bytes`.

    Between two images, in the subprocess, pebble asks whether their count is below its `max_tasks`, which this is:
    nowhere else could a process end by itself without taking an image with it.
    """

    max_bytes: int

    def __new__(cls, images: int, max_bytes: int) -> Self:
        """A bound on both."""
        made = super().__new__(cls, images)
        made.max_bytes = max_bytes
        return made

    def __reduce__(self) -> tuple[type["Wear"], tuple[int, int]]:
        """As it goes to a subprocess."""
        return Wear, (int(self), self.max_bytes)

    def __gt__(self, images: int) -> bool:
        """Whether the process may take another image; a new one always may."""
        return images < int(self) and (images == 0 or not self._is_heavy())

    def _is_heavy(self) -> bool:
        if resident_bytes() <= self.max_bytes:
            return False
        return_free_memory()
        return resident_bytes() > self.max_bytes

"""How many images may be on their way to the models: enough to keep the GPU busy, too few to sit here and wait long."""

from collections import Counter
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import Literal, NamedTuple

State = Literal["coming", "waiting", "asked"]


class Claimable(NamedTuple):
    """How many images to claim at once, and the models whose images to leave for now."""

    limit: int
    but_for: tuple[str, ...]


class Places:
    """Images by model: `coming` while they are read, `waiting` at the gate, `asked` once the model has them.

    Coming and waiting together are at most twice what may be in flight: one half for the model whose turn it is, one
    for all others, shared between the workers that have images. Only while the GPU is idle for want of images do more
    come, one by one, until it isn't. For any thread.
    """

    def __init__(self, parallel: int, models: Sequence[str], *, most: int) -> None:
        self._parallel, self._models, self._most = parallel, tuple(models), most
        self._lock = Lock()
        self._images: dict[Hashable, tuple[str, State]] = {}
        self._extra = 0
        self._turn: str | None = None
        self._share = self._free = parallel

    def enter(self, image: Hashable, model: str) -> None:
        """The image has been claimed and is to be described by `model`."""
        with self._lock:
            self._images[image] = model, "coming"

    def wait(self, image: Hashable) -> None:
        """The image has come to the gate."""
        with self._lock:
            states = Counter(state for _, state in self._images.values())
            if not states["waiting"] and self._free > 0:
                self._extra = min(self._extra + 1, self._most)
            elif states["waiting"] >= self._share:
                self._extra = max(self._extra - 1, 0)
            self._move(image, "waiting")

    def ask(self, image: Hashable) -> None:
        """The model has the image now."""
        with self._lock:
            self._move(image, "asked")
            self._free -= 1

    def put_off(self, image: Hashable) -> None:
        """The model did not want the image, which will wait again."""
        with self._lock:
            self._move(image, "coming")

    def leave(self, image: Hashable) -> None:
        """The image needs no place any more."""
        with self._lock:
            self._images.pop(image, None)

    def learn(self, turn: str | None, workers: int, free: int) -> None:
        """Whose turn it is, how many workers have images for the models, and how many more could be in flight."""
        with self._lock:
            self._turn, self._share, self._free = turn, max(1, self._parallel // max(1, workers)), free

    def coming(self) -> Counter[str]:
        """Images by model that are being read, or were put off."""
        with self._lock:
            return Counter(model for model, state in self._images.values() if state == "coming")

    def claimable(self, free: int) -> Claimable:
        """What to claim while `free` images can be read."""
        with self._lock:
            rooms = {model: self._room(model) for model in self._models}
        full = tuple(model for model, room in rooms.items() if room <= 0)
        return Claimable(min([free, *(room for room in rooms.values() if room > 0)]), full)

    def _room(self, model: str) -> int:
        inside = Counter(model for model, state in self._images.values() if state != "asked")
        if len(self._models) == 1:
            return 2 * self._share + self._extra - inside[model]
        if model == self._turn:
            return self._share + self._extra - inside[model]
        others = sum(number for name, number in inside.items() if name != self._turn)
        return self._share - others

    def _move(self, image: Hashable, state: State) -> None:
        if image in self._images:
            self._images[image] = self._images[image][0], state

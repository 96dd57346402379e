"""Images that workers were lost with: each runs with nothing else in hand, so that the next loss hits it alone."""

from collections.abc import Collection
from uuid import UUID

from arachne.jobs.claim import Claimed

ALONE_AFTER = 2  # lost workers


class Solitude:
    """The one image that a dispatcher keeps to run alone. For the dispatcher's own thread."""

    def __init__(self) -> None:
        self._image: Claimed | None = None
        self._has_begun = False

    @staticmethod
    def is_for(image: Claimed) -> bool:
        """Whether the image is to run alone: it has to be read, and was in the hands of workers that died."""
        return image.lost_leases >= ALONE_AFTER and image.fault is None and image.hit is None

    def keep(self, image: Claimed) -> bool:
        """Whether the image is kept until nothing else is in hand; another one is there already if not."""
        if self._image is not None:
            return False
        self._image, self._has_begun = image, False
        return True

    def holds(self, held: Collection[tuple[str, UUID]]) -> bool:
        """Whether nothing may be claimed now, `held` being what is in hand."""
        if self._image is not None and (self._image.image_id, self._image.claim_id) not in held:
            self._image = None
        return self._image is not None

    def begin(self, in_hand: int) -> Claimed | None:
        """The image, once, where it is the only one in hand."""
        if self._image is None or self._has_begun or in_hand > 1:
            return None
        self._has_begun = True
        return self._image

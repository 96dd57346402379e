"""Which images are sent together, and which were sent before by the same command."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from arachne.cli.extract_inputs import Input
from arachne.cli.extract_journal import Identity, Journal, Parcel

# What a service takes in one request and a little more than a second's work; results come sooner from small ones.
MAX_IMAGES, MAX_BYTES = 50, 16 * 1024 * 1024


@dataclass(frozen=True)
class Shipment:
    """A parcel, and of its images those that are wanted: their places in it, with their numbers in this run."""

    parcel: Parcel
    wanted: Mapping[int, int]


def resume(journal: Journal, numbers: Mapping[Identity, int], left: Collection[int]) -> list[Shipment]:
    """What earlier runs sent, or began to send, of the images that are left, but for those that failed.

    Parcels that were not known to be accepted are sent again as they were; one that can't be is given up.
    """
    found, claimed = [], set[int]()
    for parcel in reversed(list(journal.parcels.values())):
        wanted = {
            place: number
            for place, image in enumerate(parcel.images)
            if place not in parcel.failed
            and (number := numbers.get(image)) is not None
            and number in left
            and number not in claimed
        }
        if not wanted:
            continue
        if not parcel.is_sent and not (parcel.can_be_sent and all(image in numbers for image in parcel.images)):
            wanted = {place: number for place, number in wanted.items() if place in parcel.places}
            if not wanted:
                journal.drop(parcel)
                continue
        claimed.update(wanted.values())
        found.append(Shipment(parcel, wanted))
    return sorted(found, key=lambda one: min(one.wanted.values()))


def pack(
    journal: Journal, images: Sequence[Input], identities: Sequence[Identity | None], chosen: Sequence[int]
) -> Iterator[Shipment]:
    """The chosen images in new parcels, in order; each is noted when it is asked for."""
    portion: list[int] = []
    size_bytes = 0
    for number in chosen:
        more_bytes = images[number].size_bytes
        if portion and (len(portion) == MAX_IMAGES or size_bytes + more_bytes > MAX_BYTES):
            yield _plan(journal, identities, portion)
            portion, size_bytes = [], 0
        portion.append(number)
        size_bytes += more_bytes
    if portion:
        yield _plan(journal, identities, portion)


def _plan(journal: Journal, identities: Sequence[Identity | None], portion: Sequence[int]) -> Shipment:
    parcel = journal.plan([image for number in portion if (image := identities[number]) is not None])
    return Shipment(parcel, dict(enumerate(portion)))

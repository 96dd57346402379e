"""Which images are sent together, and which were sent before by the same command."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from arachne.cli.extract_inputs import Input
from arachne.cli.extract_journal import Identity, Journal, Parcel
from arachne.client.chunks import portions


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
) -> list[Shipment]:
    """The chosen images in new parcels, in order, each noted before any is sent."""
    return [_plan(journal, identities, one) for one in portions(chosen, lambda number: images[number].size_bytes)]


def _plan(journal: Journal, identities: Sequence[Identity | None], portion: Sequence[int]) -> Shipment:
    parcel = journal.plan([image for number in portion if (image := identities[number]) is not None])
    return Shipment(parcel, dict(enumerate(portion)))

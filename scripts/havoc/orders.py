"""What clients send in one run, all of it chosen by the seed before anything runs."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from scripts.havoc.outside import Outside
from scripts.havoc.pictures import Picture, draw_pictures

TERMINAL = ("job.completed", "job.partial", "job.failed", "job.cancelled")
MOST_IMAGES = 20  # of one job, so that one page of results has them all
SINGLE, REPEAT, CANCELLED, HOOKED, AGAIN = 0.4, 0.25, 0.08, 0.4, 0.15  # shares of all
BAD, BY_URL, INLINE = 0.04, 0.2, 0.15
CACHE = ("use", "use", "use", "bypass", "refresh")
FILTERS = (None, ["job.*"], ["image.*", "job.completed"])
NO_IMAGE = b"This is no image.\n"


@dataclass(frozen=True)
class Item:
    """One image of an order: how it is sent, and the error it is to end in, if it is bad."""

    picture: Picture
    way: str
    error: str | None = None

    @property
    def data(self) -> bytes:
        """The bytes sent."""
        return NO_IMAGE if self.error == "unsupported_image" else self.picture.png


@dataclass
class Order:
    """A submission, and what came back: the jobs it was told of, and what was seen of them finished."""

    number: int
    client: int
    key: str
    items: Sequence[Item]
    cache: str
    at_s: float
    hook: str | None = None
    hook_events: list[str] | None = None
    cancel_after_s: float | None = None
    sent_again: bool = False
    job_ids: set[str] = field(default_factory=set)
    cancelled: bool = False
    seen: dict[str, object] | None = None

    @property
    def is_single(self) -> bool:
        """Whether it goes to the route of single images."""
        return len(self.items) == 1

    @property
    def job_id(self) -> str:
        """The job it became."""
        return min(self.job_ids)

    @property
    def filters(self) -> Sequence[str]:
        """The events its own webhook is to get."""
        return TERMINAL if self.hook_events is None else self.hook_events

    def request(self, outside: Outside) -> dict[str, object]:
        """What the client sends, as its HTTP library takes it."""
        terms: dict[str, object] = {
            "options": {"detail_level": "fast", "cache": self.cache},
            "metadata": {"order": str(self.number)},
        }
        if self.hook is not None:
            hook: dict[str, object] = {"url": outside.url(self.hook)}
            terms["webhook"] = hook if self.hook_events is None else hook | {"events": self.hook_events}
        if all(item.way == "upload" for item in self.items):
            part = "file" if self.is_single else "files"
            files = [(part, (f"{n}.png", item.data, "image/png")) for n, item in enumerate(self.items)]
            return {"files": files, "data": {name: json.dumps(value) for name, value in terms.items()}}
        images = [_inline(self.number, n, item, outside) for n, item in enumerate(self.items)]
        return {"json": terms | ({"image": images[0]} if self.is_single else {"images": images})}


def _inline(order: int, number: int, item: Item, outside: Outside) -> dict[str, str]:
    if item.way == "url":
        return {"url": outside.url(f"/{order}/{number}.png"), "name": f"{number}.png"}
    return {"base64": base64.b64encode(item.data).decode(), "name": f"{number}.png"}


def plan_orders(
    random: Random, outside: Outside, *, jobs: int, images: int, clients: int, over_s: float, lines: int
) -> list[Order]:
    """So many jobs with so many images in all, spread over these seconds in bursts, in the order they are sent."""
    pictures, shown = draw_pictures(random, lines), list[Picture]()
    orders = []
    for number, (size, at_s) in enumerate(
        zip(_sizes(random, jobs, images), _moments(random, jobs, over_s), strict=True)
    ):
        items = tuple(_items(random, size, pictures, shown))
        order = Order(number, number % clients, f"order-{random.getrandbits(64):x}", items, random.choice(CACHE), at_s)
        if random.random() < HOOKED:
            order.hook, order.hook_events = f"/own/{order.client}/{random.randrange(3)}", random.choice(FILTERS)
        if random.random() < CANCELLED:
            order.cancel_after_s = random.uniform(0, 2)
        order.sent_again = random.random() < AGAIN
        _show(order, outside)
        orders.append(order)
    return orders


def _sizes(random: Random, jobs: int, images: int) -> list[int]:
    """Images of each job; some have one alone."""
    sizes = [1] * jobs
    batches = random.sample(range(jobs), max(1, round(jobs * (1 - SINGLE))))
    for _ in range(images - jobs):
        open_ones = [job for job in batches if sizes[job] < MOST_IMAGES]
        sizes[random.choice(open_ones)] += 1
    return sizes


def _moments(random: Random, jobs: int, over_s: float) -> list[float]:
    """When each is sent, in seconds; several close together, so that work piles up."""
    bursts = sorted(random.uniform(0, over_s) for _ in range(max(1, jobs // 5)))
    return sorted(random.choice(bursts) + random.uniform(0, 1) for _ in range(jobs))


def _items(random: Random, size: int, pictures: Iterator[Picture], shown: list[Picture]) -> Iterator[Item]:
    mixed = random.random() < BY_URL + INLINE
    for number in range(size):
        repeated = shown and random.random() < REPEAT
        picture = random.choice(shown[-50:]) if repeated else next(pictures)
        shown.append(picture)
        way = "url" if mixed and random.random() < BY_URL / (BY_URL + INLINE) else "inline" if mixed else "upload"
        bad = number > 0 and random.random() < BAD
        yield Item(picture, way, None if not bad else "fetch_failed" if way == "url" else "unsupported_image")


def _show(order: Order, outside: Outside) -> None:
    """The host has the order's pictures, but for those that can't be fetched."""
    for number, item in enumerate(order.items):
        if item.way == "url" and item.error is None:
            outside.pages[f"/{order.number}/{number}.png"] = item.data

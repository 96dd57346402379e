"""How many of each part a load needs, and what that stores and costs, from what an image costs each part.

Costs are those in scripts/capacity.json, one line of scripts/bench/demand; give yours with --figures. What nobody but
you can know has no default: seconds a model takes, prices.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capacity_plot import draw

FIGURES = Path(__file__).with_suffix(".json")
LEVELS = ("fast", "standard", "detailed")
DAY_S, HOURS_A_MONTH, GB = 86_400, 730, 1e9


@dataclass(frozen=True)
class Cost:
    """CPU seconds an image costs each part, and bytes in each store."""

    stages_s: float
    second_reader_s: float
    api_s: float
    io_s: float
    postgres_s: float
    database_bytes: float
    store_bytes: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + theirs for mine, theirs in zip(self._all(), other._all(), strict=True)))

    def __mul__(self, factor: float) -> "Cost":
        return Cost(*(one * factor for one in self._all()))

    @property
    def all_s(self) -> float:
        """CPU seconds in all."""
        return self.stages_s + self.second_reader_s + self.api_s + self.io_s + self.postgres_s

    def _all(self) -> tuple[float, ...]:
        return tuple(asdict(self).values())


@dataclass(frozen=True)
class Load:
    """What comes: images a second, of which `cached` are repeats, and the rest of each level by its share in `mix`."""

    images_per_s: float
    mix: Mapping[str, float]
    cached: float = 0.0
    webhooks_per_image: float = 0.05
    vlm_s: float = 0.0
    vlm_parallel: int = 2

    @property
    def described(self) -> float:
        """The share of all images that a model describes."""
        levels = sum(share for level, share in self.mix.items() if level != "fast")
        return (1 - self.cached) * levels if self.vlm_s else 0.0


@dataclass(frozen=True)
class Means:
    """What there is: stage subprocesses of a worker, the share of a process that may be busy, days kept."""

    stage_processes: int = 2
    busy: float = 0.7
    result_days: float = 30.0
    original_days: float = 7.0


def read_cost(figures: Mapping[str, Any], name: str) -> Cost:
    """What an image of this level, or a cached one, costs."""
    told = figures["images"][name]
    return make_cost(told["cpu_s"], told["database_bytes"], told["store_bytes"])


def make_cost(cpu_s: Mapping[str, float], database_bytes: float = 0, store_bytes: float = 0) -> Cost:
    """The cost with CPU seconds as scripts/bench/demand has them; what noise made negative is 0."""
    cpu = {part: max(0.0, s) for part, s in cpu_s.items()}
    return Cost(
        stages_s=cpu["gpu"],
        second_reader_s=cpu["second_reader"],
        api_s=cpu["api"],
        io_s=cpu["io"],
        postgres_s=cpu["postgres"],
        database_bytes=database_bytes,
        store_bytes=store_bytes,
    )


def mean_cost(figures: Mapping[str, Any], load: Load) -> Cost:
    """What an image of this load costs on average, its webhooks included."""
    total = read_cost(figures, "cached") * load.cached
    for level, share in load.mix.items():
        total += read_cost(figures, level) * ((1 - load.cached) * share)
    webhook = {part: max(0.0, s) * load.webhooks_per_image for part, s in figures["webhooks"]["cpu_s"].items()}
    return total + Cost(0, 0, webhook["api"], webhook["io"], webhook["postgres"], 0, 0)


def worker_rate(cost: Cost, stage_processes: int) -> float:
    """Images a second of one GPU worker with a core for each stage subprocess and one for its one second reader.

    A stage subprocess waits for the second reader's answer, and those that ask at once wait for one another: a closed
    network of one queue and as many customers as subprocesses, by mean value analysis. Source: Reiser and Lavenberg
    1980, doi 10.1145/322186.322195.
    """
    if not cost.stages_s + cost.second_reader_s:
        return math.inf
    rate = waiting = 0.0
    for subprocesses in range(1, stage_processes + 1):
        answer_s = cost.second_reader_s * (1 + waiting)
        rate = subprocesses / (cost.stages_s + answer_s)
        waiting = rate * answer_s
    return rate


def machine_rate(cost: Cost, stage_processes: int, cores: int) -> float:
    """Images a second where one worker and all other parts share this many cores."""
    return min(worker_rate(cost, stage_processes), cores / cost.all_s)


def plan(figures: Mapping[str, Any], load: Load, means: Means) -> dict[str, float]:
    """What the load needs."""
    cost, rate = mean_cost(figures, load), load.images_per_s
    gpu_s = load.described * load.vlm_s / load.vlm_parallel
    return {
        "api_processes": _processes(rate * cost.api_s, means),
        "gpu_workers": _processes(rate / worker_rate(cost, means.stage_processes), means),
        "gpu_worker_cores": round(rate * (cost.stages_s + cost.second_reader_s), 2),
        "io_workers": _processes(rate * cost.io_s, means),
        "postgres_cores": round(rate * cost.postgres_s, 2),
        "model_servers": _processes(rate * gpu_s, means) if gpu_s else 0,
        "gpu_seconds_an_image": round(gpu_s, 3),
        "cpu_seconds_an_image": round(cost.all_s, 3),
        "database_gb": round(rate * DAY_S * means.result_days * cost.database_bytes / GB, 1),
        "store_gb": round(rate * DAY_S * means.original_days * cost.store_bytes / GB, 1),
    }


def price(needed: Mapping[str, float], worker: float | None, model_server: float | None) -> dict[str, float]:
    """What workers and model servers cost a month at these prices an hour; nothing where there is no price."""
    prices = {"gpu_workers": worker, "model_servers": model_server}
    return {
        f"{name}_a_month": round(needed[name] * an_hour * HOURS_A_MONTH, 2)
        for name, an_hour in prices.items()
        if an_hour is not None
    }


def _processes(busy: float, means: Means) -> int:
    return max(1, math.ceil(busy / means.busy - 1e-9))


def read_mix(text: str) -> dict[str, float]:
    """`fast=0.5,standard=0.5` as shares of levels.

    Raises:
        argparse.ArgumentTypeError: it is not of that form, or they are not 1 together.
    """
    try:
        mix = {level: float(share) for level, share in (one.split("=") for one in text.split(","))}
    except ValueError:
        mix = {}
    if not mix or not mix.keys() <= set(LEVELS) or min(mix.values()) < 0 or not math.isclose(sum(mix.values()), 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not LEVEL=SHARE,… of {', '.join(LEVELS)}, in all 1")
    return mix


def amount(text: str) -> float:
    """A number from 0."""
    if not 0 <= (found := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0")
    return found


def share(text: str) -> float:
    """A number from 0 to 1."""
    if not 0 <= (found := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return found


def busy_share(text: str) -> float:
    """A share that is more than nothing."""
    if (found := share(text)) == 0:
        raise argparse.ArgumentTypeError("what is never busy needs endlessly many")
    return found


def positive(text: str) -> int:
    """A whole number from 1."""
    if (found := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return found


def read_figures(file: str) -> Any:
    """A line of scripts/bench/demand.

    Raises:
        argparse.ArgumentTypeError: there is none in the file.
    """
    try:
        figures = json.loads(Path(file).read_text())
        for name in (*LEVELS, "cached"):
            read_cost(figures, name)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{file} can't be read: {error}") from None
    except (KeyError, TypeError):
        raise argparse.ArgumentTypeError(f"{file} is no line of scripts/bench/demand") from None
    return figures


def main() -> None:
    """Print what is needed, or draw the picture."""
    parser = argparse.ArgumentParser(prog="scripts/capacity", description=__doc__)
    parser.add_argument("--images-per-s", type=amount, default=1.0, help="at the busiest time")
    parser.add_argument("--mix", type=read_mix, default={"standard": 1.0}, help="such as fast=0.5,standard=0.5")
    parser.add_argument("--cached", type=share, default=0.0, help="share of images that were read before")
    parser.add_argument("--webhooks-per-image", type=amount, default=0.05, help="1 in 20: one for each job of twenty")
    parser.add_argument("--vlm-s", type=amount, default=0.0, help="seconds of your model for one picture; 0: no model")
    parser.add_argument("--vlm-parallel", type=positive, default=2, help="ARACHNE_VLM_PARALLEL")
    parser.add_argument("--stage-processes", type=positive, default=2, help="ARACHNE_CPU_WORKERS of each worker")
    parser.add_argument("--busy", type=busy_share, default=0.7, help="how busy a process may be at the busiest time")
    parser.add_argument("--result-days", type=amount, default=30.0, help="ARACHNE_RESULT_RETENTION_S in days")
    parser.add_argument("--original-days", type=amount, default=7.0, help="ARACHNE_ORIGINAL_RETENTION_S in days")
    parser.add_argument("--worker-price", type=amount, help="of a machine for a GPU worker, an hour")
    parser.add_argument("--model-server-price", type=amount, help="of a machine for a model server, an hour")
    parser.add_argument("--figures", type=read_figures, default=str(FIGURES), help="a line of scripts/bench/demand")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw images a second by workers instead")
    given = parser.parse_args()
    figures = given.figures
    means = Means(given.stage_processes, given.busy, given.result_days, given.original_days)
    if given.plot is not None:
        given.plot.write_text(draw(lines(figures, means)))
        return
    load = Load(given.images_per_s, given.mix, given.cached, given.webhooks_per_image, given.vlm_s, given.vlm_parallel)
    needed = plan(figures, load, means)
    needed |= price(needed, given.worker_price, given.model_server_price)
    if given.json:
        sys.stdout.write(json.dumps(needed) + "\n")
    else:
        sys.stdout.writelines(f"{name.replace('_', ' '):24}{value:>12}\n" for name, value in needed.items())


def lines(figures: Mapping[str, Any], means: Means) -> dict[str, float]:
    """Images a second of one worker, kept as busy as it may be, for each line of the picture."""
    loads = {
        "fast": Load(1, {"fast": 1.0}),
        "half fast, half standard": Load(1, {"fast": 0.5, "standard": 0.5}),
        "standard, 30 % repeats": Load(1, {"standard": 1.0}, cached=0.3),
        "standard": Load(1, {"standard": 1.0}),
    }
    return {
        name: means.busy * worker_rate(mean_cost(figures, load), means.stage_processes) for name, load in loads.items()
    }


if __name__ == "__main__":
    main()

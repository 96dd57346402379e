"""Images a second of one worker as the capacity model predicts them and as measured, by stage processes.

The prediction is made from the CPU seconds of the same run, so that only the model is tried. Needs a quiet machine.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "scripts" / "bench")]
from capacity import machine_rate, make_cost  # noqa: E402  # neighbours of this folder's
from demand import BATCH, Bench, bench  # noqa: E402
from readings import screenshots  # noqa: E402


def main() -> None:
    """Print a line of JSON for each detail level and number of stage processes."""
    parser = argparse.ArgumentParser(prog="scripts/bench/prediction", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[ROOT / "tests" / "images"], help="folders of images")
    parser.add_argument("--images", type=int, default=100, help="of each kind")
    given = parser.parse_args()
    pictures = [path.read_bytes() for path in screenshots(given.folders)]
    for processes in (1, 2):
        os.environ["ARACHNE_CPU_WORKERS"] = str(processes)
        with bench() as running:
            for number, level in enumerate(("fast", "standard"), 1):
                numbers = range(number * 1_000_000, number * 1_000_000 + given.images)
                told = {"level": level, "stage_processes": processes} | compare(
                    running, pictures, numbers, level, processes
                )
                sys.stdout.write(json.dumps(told) + "\n")
                sys.stdout.flush()


def compare(running: Bench, pictures: Sequence[bytes], numbers: range, level: str, processes: int) -> dict[str, float]:
    """Images a second as predicted and as measured, and their ratio."""
    options = {"detail_level": level, "stages": ["structure"]}  # the stand-in model takes no part

    def draw(number: int) -> bytes:
        return pictures[number % len(pictures)] + number.to_bytes(4, "big")  # what comes after the end isn't looked at

    running.read(range(numbers.start - BATCH, numbers.start), options, draw)  # all is loaded
    began_s = time.monotonic()
    cost = make_cost(running.costs(lambda: running.read(numbers, options, draw), len(numbers)))
    measured = len(numbers) / (time.monotonic() - began_s)
    predicted = machine_rate(cost, processes, os.cpu_count() or 1)
    return {"predicted": round(predicted, 3), "measured": round(measured, 3), "ratio": round(measured / predicted, 3)}


if __name__ == "__main__":
    main()

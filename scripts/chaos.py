"""The whole product under random faults. Prints lines of JSON; exits with 0 if nothing was lost, doubled or wrong.

run        clients send jobs while every few seconds a fault strikes: processes killed and frozen, Redis emptied and
           taken away, PostgreSQL restarted. In the end every job has to be right by the record, by the receivers of
           webhooks and by the API.
recovery   seconds from `kill -9` of a GPU worker until the images it had are read by another, or by its successor.
"""

import argparse
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.havoc.faults import FAULTS  # noqa: E402  # found by the line above
from scripts.havoc.recovery import measure_recovery  # noqa: E402
from scripts.havoc.run import Run, run  # noqa: E402


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "recovery"), default="run")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--images", type=int, default=900)
    parser.add_argument("--every-s", type=float, default=15, help="seconds from one fault to the next")
    parser.add_argument("--faults", type=int, default=20, help="faults to strike; as many as there are kinds, all do")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="kinds of faults; all when not given")
    parser.add_argument("--seed", type=int, help="chooses everything; printed when not given")
    parser.add_argument("--lease-s", type=float, default=15, help="the workers' lease")
    parser.add_argument("--lines", type=int, default=5, help="lines of text on each picture: how long reading takes")
    parser.add_argument("--times", type=int, default=10, help="kills of `recovery`, in each of two ways")
    given = parser.parse_args()
    if given.what == "recovery":
        raise SystemExit(measure_recovery(given.times, given.lease_s))
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    plan = Run(
        seed=seed, jobs=given.jobs, images=given.images, every_s=given.every_s, faults=given.faults,
        kinds=tuple(given.only or FAULTS), lease_s=given.lease_s, lines=given.lines,
    )  # fmt: skip
    raise SystemExit(run(plan))


if __name__ == "__main__":
    main()

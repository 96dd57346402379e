"""Python as it is where the package was installed without extras: what only they bring can't be imported."""

import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
# `python -c PROGRAM banned,modules code arguments…`
_PROGRAM = """
import sys
class Absent:
    banned = frozenset(sys.argv[1].split(","))
    def find_spec(self, name, path=None, target=None):
        if name in self.banned:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
code = sys.argv[2]
sys.argv[:] = ["arachne", *sys.argv[3:]]
exec(code)
"""
COMMAND = "from arachne.cli import main; main()"


def lightly(code: str, *words: str) -> Sequence[str]:
    """The command line that runs this code with the base dependencies alone."""
    return [sys.executable, "-P", "-c", _PROGRAM, ",".join(sorted(banned_modules())), code, *words]


def banned_modules() -> set[str]:
    """Top-level modules that none of the base dependencies brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    light = {"arachne-vision"} | set(_closure([Requirement(line) for line in project["dependencies"]]))
    owners = {name: {canonicalize_name(one) for one in found} for name, found in packages_distributions().items()}
    return {name for name, found in owners.items() if not found & light} - {"__main__"}


def _closure(wanted: Sequence[Requirement]) -> Iterator[str]:
    """The distributions that these requirements bring, by the metadata of those that are installed."""
    seen: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in wanted for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        name = canonicalize_name(name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # for another system
            continue
        yield name
        for line in map(Requirement, lines):
            if line.marker is None or line.marker.evaluate({"extra": extra}):
                waiting += [(line.name, one) for one in ("", *line.extras)]

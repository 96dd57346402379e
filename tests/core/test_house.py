"""The project itself: layout, packages built from it, pinned requirements, and what must never be committed."""

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
REGISTRY_HOSTS = re.compile(
    r"py(?:pi\.org|thonhosted\.)|registry\.npmjs\.|deb\.debian\.|archive\.ubuntu\.", re.IGNORECASE
)
ARACHNE_COMMANDS = ({"api"}, {"worker", "gpu"}, {"worker", "io"}, {"scheduler"}, {"migrate"})


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def committed() -> tuple[Path, ...]:
    """Every file that git knows of."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout
    return tuple(ROOT / name.decode() for name in listed.split(b"\0") if name)


def build(target: str, into: Path) -> Path:
    """The sdist or wheel, built from the checkout without a network."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into], cwd=ROOT, check=True)
    return next(into.iterdir())


def source_files() -> set[str]:
    """Paths of all files of the package."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "arachne").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_http_of_the_standard_library_is_not_hidden() -> None:
    """From the checkout's root `http` is the standard library's, though a link of that name lies there."""
    assert not (ROOT / "arachne" / "http" / "__init__.py").exists()
    script = "import http.client, arachne.http.problems; print(http.client.__file__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith(str(ROOT / "arachne"))
    assert str(ROOT / "http") not in done.stdout


@pytest.mark.parametrize("name", ["actors", "http", "schemas"])
def test_parts_stand_side_by_side(name: str) -> None:
    """The top level has a relative link to each part."""
    assert (ROOT / name).readlink() == Path("arachne") / name
    assert (ROOT / name).is_dir()


def test_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    """The wheel has every file of `arachne`, data files included, its licence, its command, and no top-level links."""
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        metadata = next(name for name in names if name.endswith(".dist-info/entry_points.txt"))
        assert "arachne = arachne.cli:main" in wheel.read(metadata).decode()
    assert {name for name in names if ".dist-info/" not in name} == source_files()
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_sdist_is_enough_to_build_from(tmp_path: Path) -> None:
    """The sdist has the package, what its build reads, and no top-level links."""
    with tarfile.open(build("sdist", tmp_path)) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert source_files() | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert {name.split("/")[0] for name in names}.isdisjoint({"http", "actors", "schemas", "tests"})


def pinned(lock: str) -> set[str]:
    """The packages a lock names, each of whose entries has one version and at least one hash."""
    names = set()
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text().strip()):
        match = re.match(r"([a-z0-9-]+)==\S+", entry)
        assert match, entry[:80]
        assert "--hash=sha256:" in entry, match[0]
        names.add(match[1])
    return names


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def test_locks_pin_everything_with_hashes() -> None:
    """What runs and builds the package is in one lock, and only what tests and checks need besides in the other."""
    project, groups = pyproject()["project"], pyproject()["dependency-groups"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    wanted += groups["build"] + pyproject()["build-system"]["requires"]
    running, development = pinned("requirements.lock"), pinned("requirements-dev.lock")
    assert named(wanted) <= running
    assert named(groups["dev"]) <= running | development
    assert running.isdisjoint(development | {"mypy", "playwright", "pytest", "ruff"})


def test_image_is_built_of_files_the_lock_has_hashes_of() -> None:
    """Wheels are checked against the lock's hashes, and nothing else is asked of a registry."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip (?:install|wheel) [^&\n]*", lines)
    assert sum("--require-hashes --requirement /src/requirements.lock" in one for one in installs) == 1
    assert all("--no-index" in one for one in installs if "--require-hashes" not in one)
    assert len(installs) == 4


def test_lock_serves_the_oldest_python() -> None:
    """On 3.11.0 to 3.11.2 redis needs a package that later ones don't."""
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(r"^async-timeout==\S+ ; python_full_version < '3\.11\.3'", lock, re.MULTILINE)


def test_no_package_registry_is_named() -> None:
    """Which registry serves the packages is the installer's setting, so no committed file names one."""
    found = [
        path.relative_to(ROOT)
        for path in committed()
        if path.is_file() and path.suffix not in {".png", ".jpg", ".webp"}
        if REGISTRY_HOSTS.search(path.read_text(errors="replace"))
    ]
    assert found == []


def test_compose_runs_every_part_once() -> None:
    """compose.yaml runs each part as its own process, migrates once before, and keeps Redis from evicting."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    ours = {name: service for name, service in services.items() if service.get("image") == "arachne-vision"}
    for words in ARACHNE_COMMANDS:
        assert len([1 for service in ours.values() if words <= set(service["command"])]) == 1, words
    for name, service in ours.items():
        waits_for = set(service["depends_on"])
        assert waits_for == ({"postgres"} if name == "migrate" else {"migrate", "redis"})
    assert {"--appendonly", "noeviction"} <= set(services["redis"]["command"])
    assert {name: services[name]["profiles"] for name in ("ollama", "ollama-cpu")} == {
        "ollama": ["gpu"],
        "ollama-cpu": ["cpu"],
    }
    assert set(compose["volumes"]) == {
        volume.split(":")[0] for service in services.values() for volume in service["volumes"]
    }


@pytest.mark.parametrize("script", ["scripts/run", "scripts/test", "scripts/lock", ".ci/run"])
def test_script_can_be_executed(script: str) -> None:
    """A script is executable and is right in its own shell's eyes."""
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    shell = path.read_text().partition("\n")[0].removeprefix("#!")
    subprocess.run([shell, "-n", path], check=True)


def test_launchers_have_what_they_start() -> None:
    """Each finds the launcher from where it lies, can be executed, and has a Python file of its name beside it."""
    shared = ROOT / "scripts" / "launcher.sh"
    scripts = {
        path: path.read_text() for path in committed() if path.suffix == "" and (ROOT / "scripts") in path.parents
    }
    launchers = [path for path, text in scripts.items() if "launcher.sh" in text]
    assert ROOT / "scripts" / "bench" / "soak" in launchers
    for path in launchers:
        found = re.search(r'^\. "\$\(dirname -- "\$0"\)/(.+)"$', scripts[path], re.MULTILINE)
        assert found
        assert (path.parent / found[1]).resolve() == shared
        assert path.stat().st_mode & 0o111
        assert path.with_suffix(".py").is_file()


def test_public_types_are_marked() -> None:
    """Users' type checkers read our annotations."""
    assert (ROOT / "arachne" / "py.typed").is_file()


def test_style_is_checked_everywhere() -> None:
    """Every committed Python file is seen by ruff: an exclusion by name would hide the packages behind the links."""
    asked = [sys.executable, "-m", "ruff", "check", "--show-files", "."]
    seen = {
        Path(line)
        for line in subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    }
    links = {ROOT / name for name in ("http", "actors", "schemas")}
    python = {path for path in committed() if path.suffix == ".py" and not links & set(path.parents)}
    assert len(python) > 300
    assert python <= seen


def test_known_vulnerabilities_fail_the_audit_unless_they_were_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is listed, with the version that mends it or why it doesn't matter."""
    audit = runpy.run_path(str(ROOT / "scripts" / "audit"))
    sound = {"name": "a", "version": "1", "vulns": []}
    faulty = {"name": "b", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["3"]}]}
    assert audit["report"]([sound]) == 0
    assert audit["report"]([sound, faulty]) == 1
    assert "b 2: X-1: mended in 3" in capsys.readouterr().out
    audit["ACCEPTED"]["X-1"] = "its function is not used"
    assert audit["report"]([sound, faulty]) == 0
    assert "X-1: its function is not used" in capsys.readouterr().out

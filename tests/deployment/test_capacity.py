"""The capacity model: known answers by hand, what must rise with what, and pages that show what it says now."""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.actors import gpu, io
from arachne.database import AsyncDatabase
from arachne.http import parts

ROOT = Path(__file__).resolve().parents[2]
FIGURES = json.loads((ROOT / "scripts" / "capacity.json").read_text())


def costs(gpu: float, second_reader: float, api: float, database_bytes: int, store_bytes: int) -> dict[str, object]:
    """What scripts/bench/demand prints of a level."""
    cpu_s = {"gpu": gpu, "second_reader": second_reader, "api": api, "io": 0.0, "postgres": 0.0, "valkey": 0.0}
    return {"cpu_s": cpu_s, "database_bytes": database_bytes, "store_bytes": store_bytes}


ROUND: dict[str, Any] = {
    "images": {
        "fast": costs(0.2, 0.0, 0.01, 10_000, 100_000),
        "standard": costs(0.3, 0.5, 0.02, 20_000, 100_000),
        "cached": costs(0.0, 0.0, 0.002, 5_000, 0),
    },
    "webhooks": {"cpu_s": {"gpu": -0.001, "api": 0.0, "io": 0.01, "postgres": 0.0}},
}


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """scripts/capacity.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        yield importlib.import_module("capacity")


def test_known_answers(model: Any) -> None:
    """By hand: two stage processes at 0.2 s read 10 a second; one at 0.3 s that waits 0.5 s for the second reader 1.25.

    A second one finds that reader busy 5/8 of the time, so it waits 0.5 s * 13/8; however many there are, they read 2.
    """
    fast, standard = model.Load(28.0, {"fast": 1.0}), model.Load(7.0, {"standard": 1.0})
    assert model.worker_rate(model.mean_cost(ROUND, fast), 2) == pytest.approx(10)
    assert model.worker_rate(model.mean_cost(ROUND, standard), 1) == pytest.approx(1 / 0.8)
    assert model.worker_rate(model.mean_cost(ROUND, standard), 2) == pytest.approx(2 / (0.3 + 0.8125))
    assert model.worker_rate(model.mean_cost(ROUND, standard), 200) == pytest.approx(2)
    needed = model.plan(ROUND, fast, model.Means())
    assert (needed["gpu_workers"], needed["api_processes"], needed["model_servers"]) == (4, 1, 0)
    assert needed["store_gb"] == pytest.approx(28 * 86_400 * 7 * 100_000 / 1e9, abs=0.1)
    assert model.plan(ROUND, standard, model.Means())["gpu_workers"] == 6
    half = model.Load(10.0, {"fast": 0.5, "standard": 0.5}, cached=0.5, webhooks_per_image=1.0, vlm_s=4.0)
    assert model.mean_cost(ROUND, half).stages_s == pytest.approx(0.125)
    assert model.mean_cost(ROUND, half).io_s == pytest.approx(0.01)
    assert model.plan(ROUND, half, model.Means())["gpu_seconds_an_image"] == pytest.approx(0.5)
    assert model.plan(ROUND, half, model.Means())["model_servers"] == 8
    assert model.machine_rate(model.mean_cost(ROUND, standard), 2, 1) == pytest.approx(1 / 0.8205)


@given(
    rate=st.floats(0.1, 1000),
    more=st.floats(1, 5),
    cached=st.floats(0, 1),
    fast=st.floats(0, 1),
    vlm_s=st.floats(0, 20),
)
def test_more_images_need_no_less_and_repeats_no_more(
    model: Any, *, rate: float, more: float, cached: float, fast: float, vlm_s: float
) -> None:
    """Of every part."""

    def needed(rate: float, cached: float) -> dict[str, float]:
        mix = {"fast": fast, "standard": 1 - fast}
        plan: dict[str, float] = model.plan(FIGURES, model.Load(rate, mix, cached, vlm_s=vlm_s), model.Means())
        return plan

    one, other, repeats = needed(rate, cached), needed(rate * more, cached), needed(rate, min(1.0, cached * more))
    assert all(other[name] >= one[name] for name in one)
    assert all(repeats[name] <= one[name] for name in one)


@pytest.mark.parametrize("text", ["fast=2", "fast=0.5", "slow=1", "", "fast", "fast=-1,standard=2", "fast=x"])
def test_a_mix_that_is_none_is_refused(model: Any, text: str) -> None:
    """Levels by their names, shares that are 1 together."""
    with pytest.raises(model.argparse.ArgumentTypeError):
        model.read_mix(text)


@pytest.mark.parametrize(
    "words",
    [
        *(["--busy", "0"], ["--busy", "1.1"], ["--vlm-parallel", "0"], ["--stage-processes", "0"], ["--cached", "nan"]),
        *(["--images-per-s", "-1"], ["--images-per-s", "inf"], ["--vlm-s", "-0.1"], ["--result-days", "nan"]),
    ],
    ids=" ".join,
)
def test_a_number_that_can_be_none_is_refused(
    model: Any, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its option, with nothing printed."""
    monkeypatch.setattr(sys, "argv", ["capacity", *words])
    with pytest.raises(SystemExit) as refused:
        model.main()
    printed = capsys.readouterr()
    assert (refused.value.code, printed.out, words[0] in printed.err.splitlines()[-1]) == (2, "", True)


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"images": {"fast": {}}}'])
def test_figures_that_are_none_are_refused(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    """With the name of their file."""
    file = tmp_path / "figures.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(sys, "argv", ["capacity", "--figures", str(file)])
    with pytest.raises(SystemExit) as refused:
        model.main()
    assert (refused.value.code, str(file) in capsys.readouterr().err) == (2, True)


def test_nothing_needs_one_of_each_part(
    model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which runs whether anything comes or not; and a price of 0 is one."""
    zeros = ["--images-per-s", "0", "--worker-price", "0", "--webhooks-per-image", "0", "--original-days", "0"]
    monkeypatch.setattr(sys, "argv", ["capacity", *zeros, "--json"])
    model.main()
    needed = json.loads(capsys.readouterr().out)
    assert {name: needed[name] for name in ("api_processes", "gpu_workers", "store_gb", "gpu_workers_a_month")} == {
        "api_processes": 1, "gpu_workers": 1, "store_gb": 0, "gpu_workers_a_month": 0,
    }  # fmt: skip


def test_the_picture_shows_the_figures(model: Any) -> None:
    """`scripts/capacity --plot docs/pictures/capacity.svg` would write it as it is."""
    drawn = model.draw(model.lines(FIGURES, model.Means()))
    assert (ROOT / "docs" / "pictures" / "capacity.svg").read_text() == drawn


def test_the_page_tells_the_same_costs() -> None:
    """docs/scaling.md's table is that of scripts/capacity.json."""
    page = (ROOT / "docs" / "scaling.md").read_text()
    rows = {
        "GPU worker and its stage subprocesses": "gpu",
        "its second reader": "second_reader",
        "PostgreSQL": "postgres",
    }
    for row, part in rows.items():
        cells = re.search(rf"^\| {row} \|(.*)\|$", page, re.MULTILINE)
        assert cells is not None
        costs = [FIGURES["images"][level]["cpu_s"][part] for level in ("fast", "standard", "detailed", "cached")]
        assert [float(cell) for cell in cells[1].split("|")] == [pytest.approx(cost, abs=0.00051) for cost in costs]
    cells = re.search(r"^\| bytes in PostgreSQL.*?\|(.*)\|$", page, re.MULTILINE)
    assert cells is not None
    told = [FIGURES["images"][level]["database_bytes"] for level in ("fast", "standard", "detailed", "cached")]
    assert [int(cell.replace(",", "")) for cell in cells[1].split("|")] == told


def test_the_page_tells_the_bounds_of_the_pools() -> None:
    """Those of the code, all pools of a process together."""

    def default(kind: type) -> int:
        return int(inspect.signature(kind).parameters["pool_size"].default)

    heart, gatekeeper, teller = 1, 1, 1
    api = default(AsyncDatabase) + parts.ERASING + 1
    gpu_worker = gpu.POOL_SIZE + heart + gatekeeper + teller
    io_worker = io.POOL_SIZE + heart + 2 * default(AsyncDatabase)
    told = f"{api} connections for an API process, {gpu_worker} for a GPU worker, {io_worker} for an IO worker"
    assert told in (ROOT / "docs" / "scaling.md").read_text()

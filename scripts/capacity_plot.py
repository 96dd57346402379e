"""A picture of how many images a second a number of workers reads, as SVG."""

from collections.abc import Mapping
from html import escape

WORKERS = 10
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 60, 30, 250, 60
_COLOURS = ("#0b6e4f", "#c46210", "#6a4c93", "#1f5f99")


def draw(rates: Mapping[str, float]) -> str:
    """One line for each rate a worker has, over 1 to 10 workers."""
    top = _round_up(max(rates.values()) * WORKERS)
    grid = "".join(_level(top * step / 5, top) for step in range(6)) + "".join(map(_column, range(WORKERS + 1)))
    drawn = "".join(
        _line(name, rate, top, colour) for (name, rate), colour in zip(rates.items(), _COLOURS, strict=False)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="#fff"/>{grid}{drawn}'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 16}" text-anchor="middle">GPU workers</text>'
        f'<text x="{_LEFT - 40}" y="18">images a second</text></svg>\n'
    )


def _round_up(value: float) -> float:
    """The next number above it that has one digit but zeros."""
    scale = 1.0
    while True:
        for step in range(1, 10):
            if step * scale >= value:
                return step * scale
        scale *= 10


def _x(workers: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * workers / WORKERS


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _level(value: float, top: float) -> str:
    y = _y(value, top)
    return (
        f'<path d="M{_x(0):.1f} {y:.1f}H{_x(WORKERS):.1f}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _column(workers: int) -> str:
    return f'<text x="{_x(workers):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{workers}</text>'


def _line(name: str, rate: float, top: float, colour: str) -> str:
    end = _y(rate * WORKERS, top)
    return (
        f'<path d="M{_x(0):.1f} {_y(0, top):.1f}L{_x(WORKERS):.1f} {end:.1f}" stroke="{colour}" stroke-width="2.5" '
        f'fill="none"/><text x="{_x(WORKERS) + 8:.1f}" y="{end + 4:.1f}" fill="{colour}">{escape(name)}: '
        f"{rate:.2f} each</text>"
    )

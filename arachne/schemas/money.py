"""Sums of money: decimals from end to end, as strings on the wire, and the smallest coin of each currency."""

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

DECIMALS = 6  # of prices and of the ledger's amounts
MAX_PRICE = 1_000_000  # so that no image of many frames costs more than an amount's eighteen digits hold
# Source: ISO 4217, list one; all others have two decimals.
_COINS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI"), 0),
    **dict.fromkeys(("VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}


def round_due(amount: Decimal, currency: str) -> Decimal:
    """The amount in whole coins of the currency, halves to the even one.

    Source: IEEE 754 §4.3.1, roundTiesToEven; ISO 4217 for the coins.
    """
    return amount.quantize(Decimal(1).scaleb(-_COINS.get(currency, 2)), ROUND_HALF_EVEN)


def _no_float(value: object) -> object:
    if isinstance(value, float):
        raise ValueError('write it as a decimal string, such as "0.002"')  # noqa: TRY004  # pydantic's way
    return value


def _positive_zero(value: Decimal) -> Decimal:
    return abs(value)


_TO_THE_LAST_DECIMAL = PlainSerializer(lambda amount: f"{amount:.{DECIMALS}f}", return_type=str, when_used="json")

Money = Annotated[Decimal, _TO_THE_LAST_DECIMAL]
"""An amount as the ledger has it, with six decimals."""

Price = Annotated[
    Decimal,
    BeforeValidator(_no_float),
    Field(ge=0, le=MAX_PRICE, max_digits=18, decimal_places=DECIMALS),
    AfterValidator(_positive_zero),
    _TO_THE_LAST_DECIMAL,
]
"""A price of one image; binary fractions are refused."""

Due = Annotated[Decimal, PlainSerializer(lambda amount: f"{amount:f}", return_type=str, when_used="json")]
"""An amount in whole coins of its currency."""

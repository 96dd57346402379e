"""Usage over HTTP: from the ledger, with dates that make sense."""

import pytest

from tests.http.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("group=model", 200),
        ("from=2026-01-01&to=2026-02-01", 200),
        ("from=2026-01-01", 200),
        ("to=9999-12-31", 200),
        ("to=0001-01-01", 422),
        ("from=0001-01-01", 422),
        ("from=2026-02-01&to=2026-02-01", 422),
        ("from=yesterday", 422),
        ("group=user", 422),
    ],
)
async def test_usage_takes_dates_and_a_grouping(shared: Service, query: str, status: int) -> None:
    response = await shared.client.get(f"/api/usage?{query}", headers=await shared.headers())
    assert response.status_code == status, response.text
    if status == 200:
        report = response.json()
        assert set(report) == {"from", "to", "currency", "group", "total", "data"}
        assert report["total"]["images"] == 0
        assert report["total"]["amount_due"] == "0.000000"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("month=2026-02", 200),
        ("month=2999-12", 200),
        ("month=2026-13", 422),
        ("month=2026-2", 422),
        ("month=2٠٢٦-02", 422),
        ("month=1999-12", 422),
        ("month=2026-02-01", 422),
        ("year=2026", 422),
    ],
)
async def test_a_statement_is_for_a_month(shared: Service, query: str, status: int) -> None:
    response = await shared.client.get(f"/api/usage/statement?{query}", headers=await shared.headers())
    assert response.status_code == status, response.text
    if status == 200:
        statement = response.json()
        assert (statement["lines"], statement["subtotal"], statement["amount_due"]) == ([], "0.000000", "0.00")
        assert statement["final"] is (query == "month=2026-02")

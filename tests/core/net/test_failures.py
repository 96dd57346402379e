"""Whose fault a failed request is, and how our own are told in the log."""

import errno
import logging
import os
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from arachne.complaints import EVERY_S, Complaints
from arachne.errors import SetupError
from arachne.net.failures import classify


def fault(number: int) -> aiohttp.ClientConnectorError:
    """What a connection attempt that ends with this error number is told as."""
    key = ConnectionKey("a.example", 443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(number, os.strerror(number)))


@pytest.mark.parametrize("number", ["ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNRESET"])
def test_an_address_that_leads_nowhere_is_its_owners_fault(number: str) -> None:
    """Who names an address without a route is charged as for one where nobody listens."""
    assert classify(fault(getattr(errno, number))) == "refused"


@pytest.mark.parametrize("number", ["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "ENETDOWN"])
def test_what_this_machine_lacks_is_ours(number: str) -> None:
    """No receiver is charged for our files, memory or network card."""
    assert classify(fault(getattr(errno, number))) == "ours"
    assert classify(OSError(getattr(errno, number), "lack")) == "ours"


def test_our_faults_are_told_in_one_line_and_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand attempts without files left are one line a minute, which then tells how many more there were."""
    clock = Mock(return_value=0.0)
    complaints = Complaints(logging.getLogger("told"), clock=clock)
    for _ in range(1000):
        complaints.tell("webhooks could not be sent", fault(errno.EMFILE))
    complaints.tell("webhooks could not be sent", SetupError("No secret. Rotate it."))
    clock.return_value = EVERY_S
    complaints.tell("webhooks could not be sent", fault(errno.EMFILE))
    first, other, second = (record.getMessage() for record in caplog.records)
    assert first == f"webhooks could not be sent for a ClientConnectorError: {os.strerror(errno.EMFILE)}"
    assert other.endswith("SetupError: No secret. Rotate it.")
    assert second == first + " (999 more since the last time it was told)"


def test_what_nobody_foresaw_is_told_with_its_place_and_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the program shows where it is; its text may hold a URL and stays out."""
    url = "https://a.example/?token=secret"
    with pytest.raises(ValueError, match="token") as raised:
        int(url)
    Complaints(logging.getLogger("told")).tell("image img_1 could not be fetched", raised.value)
    assert "test_failures.py" in caplog.text
    assert "token" not in caplog.text

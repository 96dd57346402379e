"""How long the images of a killed GPU worker wait for another."""


def measure_recovery(times: int, lease_s: float) -> int:
    """Exit status."""
    raise NotImplementedError

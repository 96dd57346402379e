"""PostgreSQL and Redis from wheels, for one machine without either."""

from arachne.embedded.startup import Servers, servers

__all__ = ["Servers", "servers"]

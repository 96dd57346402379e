"""`python -m tests.standins ['{"answer_s": 0.2}'] [--port 11434]`: the stand-in for Ollama, until it is stopped."""

import argparse
import asyncio
from contextlib import suppress

from tests.standins.behaviour import Behaviour
from tests.standins.ollama import OllamaStandin


async def serve(behaviour: Behaviour, port: int) -> None:
    """Listen until cancelled; says where."""
    server = OllamaStandin(behaviour, port)
    await server.start()
    print(f"ready {server.url}", flush=True)  # noqa: T201
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.standins", description=__doc__)
    parser.add_argument("behaviour", nargs="?", default="{}", help="JSON; see tests/standins/behaviour.py")
    parser.add_argument("--port", type=int, default=0, help="port on loopback; a free one by default")
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(Behaviour.model_validate_json(arguments.behaviour), arguments.port))


if __name__ == "__main__":
    main()

"""`python -m arachne` is the command `arachne`."""

from arachne.cli import main

main()

"""`python -m blockx` is the command `blockx`."""

from blockx.cli.main import main

main()

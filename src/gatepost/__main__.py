"""`python -m gatepost`."""

from gatepost.cli.main import main

main()

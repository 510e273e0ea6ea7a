"""`python -m luminal`: the command line."""

from .cli import main

main(prog_name="luminal")

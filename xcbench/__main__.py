"""`python -m xcbench` is the command line."""

from xcbench.cli import main

main()

"""`python -m xcbench` runs the command line."""

from xcbench.cli import main

main()

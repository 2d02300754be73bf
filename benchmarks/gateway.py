"""`mustcall bench`, as a script: every flag is the command's. docs/benchmarks.md explains the figures."""

import sys

from mustcall.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])

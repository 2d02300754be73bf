"""`python -m mustcall` is `mustcall`."""

from mustcall.cli import main

if __name__ == "__main__":
    main()

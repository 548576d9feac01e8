"""`python -m penstock` is the command line."""

from penstock.cli import run

if __name__ == "__main__":
    run()

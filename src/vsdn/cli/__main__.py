"""`python -m vsdn.cli` is `vsdn`."""

from vsdn.cli import run

if __name__ == "__main__":
    run()

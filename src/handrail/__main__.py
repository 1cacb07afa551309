"""`python -m handrail` is the command `handrail`."""

from handrail.cli import main

if __name__ == "__main__":
    main()

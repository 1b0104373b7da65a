"""`python -m batchnav`: the command `batchnav`."""

from batchnav.cli import main

if __name__ == "__main__":
    main()

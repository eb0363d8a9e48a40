"""`python -m radofed` is `rado`."""

from radofed.cli import main

if __name__ == "__main__":
    main()

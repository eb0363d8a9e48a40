"""Run `rado` as `python -m radofed`."""

from radofed.cli import main

if __name__ == "__main__":
    main()

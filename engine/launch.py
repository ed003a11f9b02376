"""The documented name of `engine.cli.launch`: `python -m engine.launch`."""

from engine.cli.launch import define_flags, start  # noqa: F401 (flags: for the page that lists them)

if __name__ == "__main__":
    start()

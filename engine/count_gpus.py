"""The documented name of `engine.cli.count_gpus`: `python -m engine.count_gpus`."""

from engine.cli.count_gpus import start

if __name__ == "__main__":
    start()

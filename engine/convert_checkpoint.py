"""The old name of `python -m encoder.convert`: warns, and runs it."""

import runpy

from engine import log

if __name__ == "__main__":
    log.warn("python -m engine.convert_checkpoint is now python -m encoder.convert")
    runpy.run_module("encoder.convert", run_name="__main__", alter_sys=True)

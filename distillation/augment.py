"""The old name of `python -m augmentation.run`: warns and runs it."""

import runpy

from engine import log

if __name__ == "__main__":
    log.warn("python -m distillation.augment is now python -m augmentation.run")
    runpy.run_module("augmentation.run", run_name="__main__", alter_sys=True)

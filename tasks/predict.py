"""The earlier name of `python -m runs.predict`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("runs.predict", run_name="__main__", alter_sys=True)

"""What the process of which workers are forks has loaded."""

import importlib
import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

for _name in ("run_classifier", "pretraining.run", "rewriting.run", "distillation.run"):
    importlib.import_module(_name)

"""The engine: devices, data, training, inference and checkpoints of every run."""

import os

# Hides TensorFlow's notices (deprecations, missing CUDA libraries), which would bury our own
# messages; its errors still arrive as exceptions. Set here, before any module loads TensorFlow.
# A value that the user has set is kept.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# CUDA reads these when it starts: number the cards as nvidia-smi does, and keep all kernels that
# it compiles for a card without machine code in TensorFlow. (The default limit is too small.)
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(2**31))

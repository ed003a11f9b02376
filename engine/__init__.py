"""How any run happens, whatever it learns."""

import os

# TensorFlow's notices (deprecations, a CUDA library that is not there) drown what we have
# to say; its errors still arrive as exceptions. Said here, before any module loads it. A user's
# own setting stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# CUDA reads these when it starts. It numbers cards as nvidia-smi does, and keeps all of what it
# compiled for a card that TensorFlow has no machine code for: its default drops some of it.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(2**31))

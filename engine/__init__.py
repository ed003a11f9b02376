"""How any run happens, whatever it learns."""

import os

# TensorFlow's notices (deprecations, a CUDA library that is not there) drown what we have
# to say; its errors still arrive as exceptions. Said here, before any module loads it. A user's
# own setting stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

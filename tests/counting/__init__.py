from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

"""A service that answers over HTTP with trained models."""

import engine  # noqa: F401 (silences TensorFlow's notices, before a module loads it)

"""When the steps of a peer's training ended."""

import time

import tensorflow as tf


class StepTimes(tf.train.SessionRunHook):
    """When each step ended."""

    def __init__(self):
        self.ends = []

    def after_run(self, run_context, run_values):
        self.ends.append(time.time())

"""Requests that TensorFlow Serving answers with a new version of an export before it takes over.

https://www.tensorflow.org/tfx/serving/saved_model_warmup describes the file.
"""

import os

import numpy as np
import tensorflow.compat.v1 as tf

from runs.head import Head, Model
from runs.rows import UNREAD

FILE = "tf_serving_warmup_requests"  # in the folder of assets

_LENGTHS = (16, 32, 64, 128, 256, 512)  # tokens


def write(assets: str, head: Head, model: Model) -> None:
    """Writes a request of each length that the model reads, if tensorflow-serving-api is installed."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        return  # nobody who is without it serves with it
    if not head.reader:
        return
    reader = head.reader(model)
    source = reader.encode([
        UNREAD if reader.takes_pairs else UNREAD._replace(text_b=None)]).source
    with tf.python_io.TFRecordWriter(os.path.join(assets, FILE)) as file:
        for length in sorted({min(length, source.max_length) for length in _LENGTHS}):
            features = source.fetch(np.zeros(1, np.int64), length)
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = (
                tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY)
            for name in head.inputs:
                request.inputs[name].CopyFrom(tf.make_tensor_proto(features[name]))
            file.write(prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)).SerializeToString())

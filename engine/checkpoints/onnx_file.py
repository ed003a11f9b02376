"""Models as ONNX files, which onnxruntime and other programs without TensorFlow read."""

import inspect
import logging
import os
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

from engine import log
from engine.disk import files
from engine.errors import UserError

# The version of ONNX's operators: onnxruntime 1.10, the last one for Python 3.7 and NumPy 1.18, reads it.
OPSET = 15
_PRODUCTS, _OF_INT8 = ("MatMul", "Gemm"), ("MatMulInteger", "DynamicQuantizeLinear")  # operations
_HUGGING_FACE = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}  # by our names


class CannotConvert(UserError):
    """ONNX's tools are missing, or cannot convert or compute the model."""


def write(path: str, export_dir: str, metadata: Mapping[str, str], *, int8: bool = False) -> None:
    """Writes the ONNX file of an export.

    Its outputs have the names, types and shapes of the signature's. Its inputs are int64,
    with Hugging Face's names where it has some.

    Args:
        path: the file, which replaces an earlier one.
        export_dir: a folder that `saved_model.write` has written.
        metadata: what other programs need to know of the model.
        int8: see `quantize`.
    """
    try:
        graph, inputs, outputs = _loaded(export_dir)
    except (OSError, KeyError, ValueError, tf.errors.OpError) as error:
        raise UserError(f"the export {export_dir} cannot be read: {log.brief(error)}; write it "
                        "again with --do_export") from error
    with files.atomic_path(path) as temporary:
        if not int8:
            convert(temporary, graph, inputs, outputs, metadata)
            return
        exact = f"{temporary}.float32"
        convert(exact, graph, inputs, outputs, {**metadata, "weights": '"int8"'})
        quantize(temporary, exact)


def convert(path: str, graph: tf.GraphDef, inputs: Dict[str, str], outputs: Dict[str, str],
            metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a graph without variables.

    Args:
        inputs, outputs: their names in the file, by the names of their tensors in the graph.
        metadata: of a file for other programs, as `write` makes it.
    """
    try:
        import onnx
        import tf2onnx  # few need them
    except ImportError as error:
        raise CannotConvert(f"ONNX needs tf2onnx ({error}): pip install -r encoder/requirements.txt") from error
    try:
        model, _ = tf2onnx.convert.from_graph_def(
            graph, input_names=sorted(inputs), output_names=sorted(outputs), opset=OPSET,
            tensors_to_rename={**inputs, **outputs})
    except Exception as error:  # tf2onnx does not document which
        raise CannotConvert(f"tf2onnx cannot convert the model: {log.brief(repr(error))}") from error
    if metadata is not None:
        _prepare_for_others(onnx, model, metadata)
    onnx.save(model, path)


def open_session(path: str, threads: int) -> Any:
    """A session of onnxruntime; any number of threads may call its `run`.

    Args:
        threads: that compute each step.

    Raises:
        CannotConvert: onnxruntime is missing, or cannot compute the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise CannotConvert(f"onnxruntime is missing ({error}): pip install -r "
                            "serving/requirements.txt") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are ours
    options.intra_op_num_threads = threads
    # Threads spin between two operations of a step, and not after it.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no common base
        raise CannotConvert(f"onnxruntime {onnxruntime.__version__} cannot compute {path}: "
                            f"{log.brief(error)}") from error


def quantize(path: str, source: str) -> None:
    """Writes a file with the encoder's weights in int8, and the output layer's in float32.

    Args:
        path: in a folder for temporary files.
        source: the file of the same model in float32.
    """
    try:
        import onnx
        from onnxruntime import quantization
    except ImportError as error:
        raise CannotConvert(f"int8 needs onnx and onnxruntime ({error}): pip install -r "
                            "encoder/requirements.txt") from error
    graph = onnx.load(source).graph
    if any(node.op_type in _OF_INT8 for node in graph.node):
        raise UserError(f"{source} is int8 already: give the model in float32")
    options = {"optimize_model": False} if "optimize_model" in inspect.signature(
        quantization.quantize_dynamic).parameters else {}  # of onnxruntime 1.10
    beside = f"{path}.source.onnx"  # it writes another file beside its source
    os.symlink(os.path.abspath(source), beside)
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises to shrink the graph first, which tf2onnx has done
    try:
        quantization.quantize_dynamic(
            pathlib.Path(beside), pathlib.Path(path), per_channel=True, weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=_products_outside(graph), **options)
    finally:
        logger.setLevel(level)
    os.remove(beside)


def _products_outside(graph: Any) -> List[str]:
    """The names of the products with weights that are not the encoder's."""
    weights = {weight.name for weight in graph.initializer if not weight.name.startswith("bert/")}
    return [node.name for node in graph.node if node.op_type in _PRODUCTS and weights.intersection(node.input)]


def _prepare_for_others(onnx: Any, model: Any, metadata: Mapping[str, str]) -> None:
    """Makes the inputs Hugging Face's, names the axes, and adds the metadata."""
    graph = model.graph
    has_words = any(tensor.name == "first_pieces" for tensor in graph.input)  # a tagger
    int32 = {tensor.name: f"{tensor.name}/int32" for tensor in graph.input}
    for node in graph.node:
        node.input[:] = [int32.get(name, name) for name in node.input]
    for tensor in graph.input:
        read, tensor.name = int32[tensor.name], _HUGGING_FACE.get(tensor.name, tensor.name)
        tensor.type.tensor_type.elem_type = onnx.TensorProto.INT64
        graph.node.insert(0, onnx.helper.make_node(
            "Cast", [tensor.name], [read], to=onnx.TensorProto.INT32))
    for tensor in [*graph.input, *graph.output]:
        of_words = has_words and (tensor.name == "first_pieces" or tensor in graph.output)
        names = ["batch", "words" if of_words else "sequence"]
        for axis, name in zip(tensor.type.tensor_type.shape.dim, names):
            if not axis.dim_value:
                axis.dim_param = name
    onnx.helper.set_model_props(model, dict(metadata))


def _loaded(export_dir: str) -> Tuple[tf.GraphDef, Dict[str, str], Dict[str, str]]:
    """The export's graph with constants for variables, and the names of its inputs and outputs.

    These are by the names of their tensors in the graph.
    """
    with tf.Graph().as_default() as graph, tf.Session(
            graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        meta_graph = tf.saved_model.load(
            session, [tf.saved_model.tag_constants.SERVING], export_dir)
        signature = meta_graph.signature_def[
            tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
        inputs, outputs = ({entry.name: name for name, entry in entries.items()}
                           for entries in (signature.inputs, signature.outputs))
        return frozen(session, list(outputs)), inputs, outputs


def frozen(session: tf.Session, outputs: Sequence[str]) -> tf.GraphDef:
    """The session's graph with constants for variables, as far as these tensors need it."""
    return tf.graph_util.convert_variables_to_constants(
        session, session.graph.as_graph_def(), [name.rsplit(":", 1)[0] for name in outputs])

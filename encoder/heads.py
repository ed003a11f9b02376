"""The heads of models that are converted: their outputs and labels, and what a Hugging Face folder cannot hold."""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from encoder import huggingface, label_types, long_texts, tag_set, task_json, variables
from encoder.huggingface import Weights
from engine.errors import UserError


def from_huggingface(weights: Weights, config: Mapping[str, Any], path: str, takes_pairs: bool
                     ) -> Tuple[Dict[str, int], Optional[Dict[str, Any]]]:
    """A fine-tuned model's head with its number of outputs, and the entries of its task.json."""
    head = huggingface.head_of(weights, config)
    num_outputs = (*weights.shapes.get("classifier.weight", ()), 2)[0]  # 2: transformers' default
    if head == variables.READER:
        return {head: 2}, task_json.of_reader()
    if head == variables.CHOOSER:
        return {head: 1}, task_json.OF_CHOOSER
    if head == variables.TAGGER:
        tags = tag_set.from_huggingface(config, path, num_outputs)
        return {head: len(tags.labels)}, task_json.of_tagger(tags.types, tags.scheme, False, tags.own_tags)
    if head == variables.CLASSIFIER:
        labels = label_types.from_huggingface(config, path, num_outputs)
        return {head: labels.num_outputs}, {**labels.describe(), "takes_pairs": takes_pairs}
    return {}, None


def from_tensorflow(description: Mapping[str, Any], weights: Weights, where: str
                    ) -> Tuple[Dict[str, int], Dict[str, Any]]:
    """A fine-tuned model's head with its number of outputs, and its entries of config.json."""
    if task_json.is_classifier(description):
        labels = label_types.of_description(description, where)
        return {variables.CLASSIFIER: labels.num_outputs}, label_types.to_huggingface(labels)
    if task_json.is_tagger(description):
        if description.get("crf"):
            raise UserError(f"{where} is a tagger with a CRF, and BertForTokenClassification has no place for the "
                            "scores of its transitions; a tagger that is trained without --crf can be converted")
        tags = tag_set.of_description(description, where)
        return {variables.TAGGER: len(tags.labels)}, tag_set.to_huggingface(tags)
    if task_json.is_reader(description) or not description and "cls/squad/output_bias" in weights.shapes:
        return {variables.READER: 2}, {}
    if task_json.is_chooser(description):
        return {variables.CHOOSER: 1}, {}
    if description and not task_json.gives_vectors(description):
        raise UserError(f"{where} is a model of the kind {description['kind']!r}, which transformers does not have")
    return {}, {}


def untold(description: Mapping[str, Any], weights: Weights, head: Optional[str]) -> Iterator[str]:
    """Warnings of what a Hugging Face folder cannot hold."""
    if "output_bias" in weights.shapes and not description:
        yield ("it is a classifier whose labels are not known: --from_checkpoint and --labels make a model folder of "
               "it, which keeps its head")
    if description.get("version_2_with_negative"):
        yield ("questions may have no answer, which a folder there cannot say: compare an answer's score with that of "
               "[CLS]")
    if head and description.get("takes_pairs"):
        yield "its texts are pairs, which a folder there cannot say: to convert it back, set --takes_pairs"
    if long_texts.ENTRY in description:
        yield "texts that do not fit are cut at their end there, and not as this model has it (--long_texts)"


def architecture(parts: List[str]) -> str:
    """The transformers class that has exactly these parts."""
    for head, ending in variables.HEADS.items():
        if head in parts:
            return f"Bert{ending}"
    if variables.MASKED_LM_HEAD not in parts:
        return "BertModel"
    with_pair_head = variables.NEXT_SENTENCE_HEAD in parts
    return "BertForPreTraining" if with_pair_head else "BertForMaskedLM"

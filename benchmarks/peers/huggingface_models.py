"""Models of Hugging Face's classes, and what its pipelines compute with them.

Runs in an environment of its own (`torch`, `transformers`). The first command writes a folder for each
class. BERT has the encoder of --model_dir; the other encoders and all heads are random. The second prints the
numbers that the models in --folders compute for --texts, a JSON list of [question, context]. A reader reads the
contexts, a model of multiple choice chooses one of their halves, the others read the questions alone.

  python -m benchmarks.peers.huggingface_models make --model_dir=MINILM --output_dir=DIR
  python -m benchmarks.peers.huggingface_models read --texts=FILE --folders DIR/BertModel
"""

import argparse
import json
import os

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, pipeline

LABELS = {"SequenceClassification": ["world", "sports", "business", "science"],
          "TokenClassification": ["O", "B-LOC", "B-PER", "I-LOC", "I-PER"], "QuestionAnswering": [None] * 2}
SIZE = dict(hidden_size=384, num_attention_heads=12, num_hidden_layers=6, intermediate_size=1536)
# The types; of the random ones with their configuration. RoBERTa, DeBERTa and ALBERT are refused.
CONFIGS = {"Bert": None, "DistilBert": dict(dim=384, n_heads=12, n_layers=6, hidden_dim=1536),
           "Electra": dict(SIZE, embedding_size=384), "ElectraSmall": dict(SIZE, embedding_size=128),
           "Roberta": SIZE, "DebertaV2": SIZE, "Albert": dict(SIZE, embedding_size=128)}
MODELS = [*(f"{name}{head}" for name in ("Bert", "DistilBert", "Electra")
            for head in ("Model", *(f"For{task}" for task in LABELS), "ForMultipleChoice")),
          "ElectraSmallModel", "RobertaModel", "DebertaV2Model", "AlbertModel"]


def make(args):
    tokenizer = AutoTokenizer.from_pretrained(args.model_dir)
    for model in MODELS:
        torch.manual_seed(0)
        name = next(name for name in sorted(CONFIGS, key=len, reverse=True) if model.startswith(name))
        names = LABELS.get(model[len(name) + len("For"):], [None] * 2)
        labels = {"id2label": dict(enumerate(names))} if names[0] else {"num_labels": 2}
        made = getattr(transformers, model.replace("Small", ""))
        if name == "Bert":
            loaded = made.from_pretrained(args.model_dir, **labels)
        else:
            config = made.config_class(**CONFIGS[name], vocab_size=len(tokenizer), initializer_range=0.05, **labels)
            loaded = made(config)
        for head in ("classifier", "qa_outputs"):
            for values in getattr(loaded, head, torch.nn.Identity()).parameters():
                torch.nn.init.normal_(values, std=0.5)
        loaded.save_pretrained(os.path.join(args.output_dir, model))
        tokenizer.save_pretrained(os.path.join(args.output_dir, model))
    print(json.dumps(MODELS))


@torch.no_grad()
def read(args):
    with open(args.texts, encoding="utf-8") as file:
        pairs = json.load(file)
    print(json.dumps({folder: list(values_of(folder, pairs)) for folder in args.folders}))


def values_of(folder, pairs):
    """Of each text: a classifier's probabilities; the tag and probability of the token at each character
    where one begins; each token's probabilities as start and end of the answer; the halves'; the mean state."""
    task = AutoConfig.from_pretrained(folder).architectures[0].partition("For")[2]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if task == "QuestionAnswering":  # transformers has no pipeline for it any more
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
        for question, context in pairs:
            output = model(**tokenizer(question, context, return_tensors="pt"))
            yield torch.softmax(torch.cat([output.start_logits, output.end_logits]), -1).tolist()
        return
    if task == "MultipleChoice":
        model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
        for question, context in pairs:
            halves = context[:len(context) // 2], context[len(context) // 2:]
            encoded = tokenizer([question] * 2, list(halves), padding=True, return_tensors="pt")
            yield torch.softmax(model(**{name: values[None] for name, values in encoded.items()}).logits[0], -1).tolist()
        return
    names = {"SequenceClassification": "text-classification", "TokenClassification": "token-classification"}
    options = {"SequenceClassification": {"top_k": None}, "TokenClassification": {"ignore_labels": []}}
    compute = pipeline(names.get(task, "feature-extraction"), model=folder, tokenizer=tokenizer)
    for text, _ in pairs:
        found = compute(text, **options.get(task, {}))
        if task == "SequenceClassification":
            scores = {each["label"]: each["score"] for each in found}
            yield [scores[label] for label in LABELS[task]]
        elif task == "TokenClassification":
            yield {each["start"]: [each["entity"], float(each["score"])] for each in found}
        else:
            yield torch.tensor(found[0]).mean(0).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["make", "read"])
    for name in ("model_dir", "output_dir", "texts"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--folders", nargs="*")
    args = parser.parse_args()
    (make if args.command == "make" else read)(args)


if __name__ == "__main__":
    main()

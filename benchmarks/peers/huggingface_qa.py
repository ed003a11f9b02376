"""The peer on PyTorch: a Hugging Face encoder fine-tuned to answer questions, as `run_qa` does it.

Runs in an environment of its own (`torch`, `transformers`): overlapping windows, dynamic padding,
linear warm-up and decay, AdamW with clipping; the best valid span over the windows of a question, or no
answer where that scores better. Writes {id: answer}; prints one JSON line: windows/s.

  python -m benchmarks.peers.huggingface_qa --model_dir=DIR --train_file=FILE --dev_file=FILE \\
    --output_file=predictions.json --num_steps=100
"""

import collections
import json

import torch
from transformers import AutoModelForQuestionAnswering

from benchmarks.peers.huggingface import in_parts, loaded, parser_of, train_on

N_BEST, MAX_ANSWER_LENGTH, MAX_QUERY_LENGTH = 20, 30, 32
BATCH_KEYS = ("input_ids", "token_type_ids", "attention_mask")

Question = collections.namedtuple("Question", "id text context answer start")
# offsets: where each token of the context stands in it; None for other tokens.
Window = collections.namedtuple("Window", "question inputs offsets")


def read(path):
    """The questions of a file of SQuAD's layout with their first answers, "" where there is none."""
    with open(path, encoding="utf-8") as file:
        for article in json.load(file)["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    answer = (question["answers"] or [{"text": "", "answer_start": 0}])[0]
                    yield Question(question["id"], question["question"].lstrip(),
                                   paragraph["context"], answer["text"], answer["answer_start"])


def cut(tokenizer, text):
    """The question in MAX_QUERY_LENGTH tokens: longer ones leave no room that windows could advance in."""
    encoded = tokenizer(text, add_special_tokens=False, truncation=True, max_length=MAX_QUERY_LENGTH,
                        return_offsets_mapping=True)
    return text[:encoded["offset_mapping"][-1][1]]


def windows_of(tokenizer, questions, args):
    encoded = tokenizer([cut(tokenizer, question.text) for question in questions],
                        [question.context for question in questions], truncation="only_second",
                        max_length=args.max_seq_length, stride=args.doc_stride,
                        return_overflowing_tokens=True, return_offsets_mapping=True)
    for row, index in enumerate(encoded["overflow_to_sample_mapping"]):
        offsets = [offset if sequence == 1 else None for offset, sequence in
                   zip(encoded["offset_mapping"][row], encoded.sequence_ids(row))]
        yield Window(questions[index], {key: encoded[key][row] for key in BATCH_KEYS}, offsets)


def target_of(window):
    """The first and last token of the answer; [CLS] twice if it is not in the window."""
    question = window.question
    end = question.start + len(question.answer)
    inside = [position for position, offset in enumerate(window.offsets)
              if offset and offset[0] < end and offset[1] > question.start]
    whole = [offset for offset in window.offsets if offset]
    if not inside or whole[0][0] > question.start or whole[-1][1] < end:
        return 0, 0
    return inside[0], inside[-1]


def batch_of(tokenizer, windows):
    return tokenizer.pad([window.inputs for window in windows], return_tensors="pt")


def training_batch_of(tokenizer, windows):
    starts, ends = map(torch.tensor, zip(*map(target_of, windows)))
    return {**batch_of(tokenizer, windows), "start_positions": starts, "end_positions": ends}


def spans_of(window, starts, ends):
    """(score, text) of the valid spans among the best starts and ends of a window."""
    for first in starts.topk(min(N_BEST, len(starts))).indices.tolist():
        for last in ends.topk(min(N_BEST, len(ends))).indices.tolist():
            if (first <= last < first + MAX_ANSWER_LENGTH
                    and window.offsets[first] and window.offsets[last]):
                yield (float(starts[first] + ends[last]), window.question.context[
                    window.offsets[first][0]:window.offsets[last][1]])


@torch.no_grad()
def predict(model, tokenizer, windows, args):
    """{id: answer}."""
    model.eval()
    best, null = {}, {}
    for part in in_parts(windows):
        outputs = model(**batch_of(tokenizer, part))
        for window, starts, ends in zip(part, outputs.start_logits, outputs.end_logits):
            name, size = window.question.id, len(window.offsets)
            none = float(starts[0] + ends[0])
            null[name] = min(none, null.get(name, none))
            best[name] = max([best.get(name, (float("-inf"), "")),
                              *spans_of(window, starts[:size], ends[:size])])
    return {name: "" if args.version_2_with_negative and null[name] > score else text
            for name, (score, text) in best.items()}


def main():
    parser = parser_of(__doc__, "train_file", "dev_file", "output_file", batch_size=16)
    parser.add_argument("--num_steps", type=int, required=True)
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128, help="tokens that two windows share")
    parser.add_argument("--version_2_with_negative", action="store_true")
    args = parser.parse_args()
    model, tokenizer = loaded(AutoModelForQuestionAnswering, args)
    training, dev = (list(windows_of(tokenizer, list(read(path)), args))
                     for path in (args.train_file, args.dev_file))
    rate = train_on(training, lambda part: training_batch_of(tokenizer, part), model, args.num_steps, args)
    with open(args.output_file, "w", encoding="utf-8") as file:
        json.dump(predict(model, tokenizer, dev, args), file)
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main()

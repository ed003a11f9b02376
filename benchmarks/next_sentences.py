"""Questions 'which of four sentences comes next', from books, for `benchmarks.quality choice`.

  python -m benchmarks.next_sentences --books=en_books.txt --output_dir=DIR

The wrong ones are sentences nearby, at most 200 lines away. The dev set is from the last tenth of the file.
"""

import json
import os
import random
from typing import Dict, Iterator, List, Sequence

from benchmarks import report
from engine.data import text_files
from engine.disk import files

NEAR, FEWEST, MOST = 200, 5, 40  # lines around the question; words of a sentence


def questions(sentences: Sequence[str], count: int, seed: int) -> Iterator[Dict[str, object]]:
    """So many questions; sentences are lines, and a blank one ends a paragraph."""
    generator = random.Random(seed)
    usable = [FEWEST <= len(sentence.split()) <= MOST for sentence in sentences]
    places = [place for place in range(len(sentences) - 1) if usable[place] and usable[place + 1]]
    for place in generator.sample(places, count):
        others = [other for other in range(max(0, place - NEAR), min(len(sentences), place + NEAR))
                  if usable[other] and other not in (place, place + 1)]
        choices = [place + 1, *generator.sample(others, 3)]
        generator.shuffle(choices)
        yield {"question": sentences[place], "choices": [sentences[choice] for choice in choices],
               "answer": choices.index(place + 1)}


def main() -> None:
    parser = report.parser_of(__doc__, "books", "output_dir")
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--dev", type=int, default=1000)
    args = parser.parse_args()
    sentences: List[str] = [line.strip() for _, line in text_files.lines(args.books)]
    end = len(sentences) * 9 // 10
    os.makedirs(args.output_dir, exist_ok=True)
    for name, part, count in (("train", sentences[:end], args.train), ("dev", sentences[end:], args.dev)):
        files.write_text(os.path.join(args.output_dir, f"{name}.jsonl"), "".join(
            json.dumps(question, ensure_ascii=False) + "\n" for question in questions(part, count, seed=len(name))))


if __name__ == "__main__":
    main()

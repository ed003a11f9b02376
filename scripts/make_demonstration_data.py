"""Makes the data of a small demonstration task: is this a sentence, or are its words scrambled?

    python -m scripts.make_demonstration_data DIR

Writes train.tsv, dev.tsv and test.tsv in CoLA's layout (--task_name=cola). For each sentence of
a small grammar (label 1), the same file has one in which words were exchanged until it is not in
the grammar (label 0). A model that ignores the order of the words is right half of the time.
Every call writes the same files.
"""

import functools
import os
import random
import sys
from typing import List, Sequence, Tuple

from engine.disk import files

# Symbol → its expansions; a word that is neither a symbol nor a class is a terminal.
GRAMMAR = {
    "SENTENCE": ("CLAUSE", "PLACE CLAUSE", "CLAUSE LINK CLAUSE"),
    "CLAUSE": ("ONE IT_DOES", "MANY THEY_DO", "ONE MODAL DO", "MANY MODAL DO"),
    "ONE": ("a SINGULAR", "the SINGULAR", "every SINGULAR", "name"),
    "MANY": ("the PLURAL", "some PLURAL", "two PLURAL", "PLURAL", "name and name"),
    "ANYONE": ("ONE", "MANY"),
    "SINGULAR": ("thing", "adjective thing", "thing PLACE", "thing that IT_DOES"),
    "PLURAL": ("things", "adjective things", "things PLACE", "things that THEY_DO"),
    "IT_DOES": ("goes", "goes adverb", "goes PLACE", "sees ANYONE", "says that CLAUSE",
                "wants to DO", "is adjective"),
    "THEY_DO": ("go", "go adverb", "go PLACE", "see ANYONE", "say that CLAUSE",
                "want to DO", "are adjective"),
    "DO": ("go", "go adverb", "go PLACE", "see ANYONE"),
    "PLACE": ("preposition the thing", "preposition a adjective thing"),
    "LINK": ("because", "and", "but", "when"),
    "MODAL": ("can", "will", "must", "should"),
}

# Class → its words. No word is in two classes.
CLASS_WORDS = {name: tuple(words.split()) for name, words in {
    "name": "Anna Peter Maria Oscar Clara Simon Laura Victor Julia Martin Emma Daniel",
    "thing": "dog teacher river garden child bridge doctor train farmer window sailor castle "
             "neighbour horse table singer forest lamp painter ship village baker",
    "things": "dogs teachers rivers gardens children bridges doctors trains farmers windows "
              "sailors castles neighbours horses tables singers forests lamps painters ships",
    "adjective": "grey young tall quiet happy clever heavy strange brave lonely small famous "
                 "green broken gentle tired",
    "adverb": "slowly quickly today quietly often again early alone loudly happily",
    "preposition": "near behind under beside above outside inside",
    "goes": "sleeps waits arrives falls sings vanishes returns works smiles dances",
    "go": "sleep wait arrive fall sing vanish return work smile dance",
    "sees": "sees follows helps finds likes watches remembers hears needs admires",
    "see": "see follow help find like watch remember hear need admire",
    "says": "says thinks knows believes claims",
    "say": "say think know believe claim",
    "wants": "wants hopes plans tries learns",
    "want": "want hope plan try learn",
}.items()}

LENGTHS = range(5, 15)  # words
SPLITS = {"train": 2000, "dev": 400, "test": 200}  # sentences, half of them scrambled


def generate(symbol: str, generator: random.Random) -> List[str]:
    """Expands a symbol into random words."""
    if symbol in CLASS_WORDS:
        return [generator.choice(CLASS_WORDS[symbol])]
    if symbol not in GRAMMAR:
        return [symbol]
    return [word for part in generator.choice(GRAMMAR[symbol]).split()
            for word in generate(part, generator)]


def scramble(words: Sequence[str], generator: random.Random) -> List[str]:
    """Exchanges two words at a time until the words are not a sentence of the grammar."""
    scrambled = list(words)
    while can_become(("SENTENCE",), tuple(scrambled)):
        i, j = generator.sample(range(len(words)), 2)
        scrambled[i], scrambled[j] = scrambled[j], scrambled[i]
    return scrambled


@functools.lru_cache(maxsize=1 << 16)
def can_become(symbols: Tuple[str, ...], words: Tuple[str, ...]) -> bool:
    """Whether the symbols can be expanded into exactly these words."""
    if not symbols or len(symbols) > len(words):  # no symbol expands into nothing
        return symbols == words
    first, rest = symbols[0], symbols[1:]
    if first in GRAMMAR:
        return any(can_become((*expansion.split(), *rest), words) for expansion in GRAMMAR[first])
    return words[0] in CLASS_WORDS.get(first, (first,)) and can_become(rest, words[1:])


def write_examples(output_dir: str) -> None:
    """Writes the sets in CoLA's layout: source, label, star, sentence; the test set has only an
    index and the sentence. No two sentences of the grammar have the same words."""
    generator, seen = random.Random(42), set()
    for name, size in SPLITS.items():
        examples: List[Tuple[List[str], int]] = []
        while len(examples) < size:
            words = generate("SENTENCE", generator)
            if len(words) in LENGTHS and tuple(sorted(words)) not in seen:
                seen.add(tuple(sorted(words)))
                examples += [(words, 1), (scramble(words, generator), 0)]
        generator.shuffle(examples)
        rows = ["index\tsentence"] if name == "test" else []
        for index, (words, label) in enumerate(examples):
            text = " ".join([words[0][0].upper() + words[0][1:], *words[1:]]) + "."
            rows.append(f"{index}\t{text}" if name == "test" else
                        f"demo\t{label}\t{'' if label else '*'}\t{text}")
        files.write_text(os.path.join(output_dir, f"{name}.tsv"), "\n".join(rows) + "\n")


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    write_examples(sys.argv[1])

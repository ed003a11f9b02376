"""Questions with choices: the right one is the only one with an animal."""

import json
import random

from conftest import WORDS

ANIMALS = ("cat", "dog", "bird")
OTHERS = [word for word in WORDS if word not in ANIMALS and word.isalpha()]


def made_up(count, seed=0, most=5):
    """Objects with two to `most` choices."""
    generator = random.Random(seed)
    for _ in range(count):
        choices = [" ".join(generator.choices(OTHERS, k=generator.randint(1, 6)))
                   for _ in range(generator.randint(2, most))]
        answer = generator.randrange(len(choices))
        choices[answer] += f" {generator.choice(ANIMALS)}"
        yield {"question": " ".join(generator.choices(OTHERS, k=4)), "choices": choices, "answer": answer}


def write(path, objects):
    """JSON lines."""
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path

"""The losses of vectors and their gradients in NumPy, derived by hand, in float64."""

import numpy as np


def unit(vectors):
    """The vectors, as long as 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def ranked(vectors, texts, symmetric, temperature):
    """The ranking loss of unit vectors [n, s, D] of the texts [n, s], and its gradient."""
    count, num_texts = vectors.shape[:2]
    loss, gradient = 0.0, np.zeros_like(vectors)
    candidates = [(row, text) for text in range(1, num_texts) for row in range(count)]
    directions = [(0, candidates)] + [(1, [(row, 0) for row in range(count)])] * symmetric
    for role, others in directions:
        for row in range(count):
            anchor, positive = texts[row, 0], texts[row, 1]

            def is_negative(other, text):
                if role == 0:
                    return texts[other, text] not in (anchor, positive) and not (
                        text == 1 and texts[other, 0] == anchor)
                return texts[other, 0] not in (anchor, positive) and texts[other, 1] != positive
            own = (row, 1 - role)
            kept = [place for place in others if place == own or is_negative(*place)]
            cosines = np.array([vectors[row, role] @ vectors[place] for place in kept])
            shares = np.exp(cosines / temperature)
            shares /= shares.sum()
            loss -= np.log(shares[kept.index(own)])
            for place, share in zip(kept, shares):
                change = (share - (place == own)) / temperature
                gradient[row, role] += change * vectors[place]
                gradient[place] += change * vectors[row, role]
    return loss / count / len(directions), gradient / count / len(directions)


def cosent(vectors, scores, temperature):
    """The same of the loss of scores."""
    count = len(vectors)
    cosines = np.einsum("nd,nd->n", vectors[:, 0], vectors[:, 1]) / temperature
    pairs = [(i, j) for i in range(count) for j in range(count) if scores[i] > scores[j]]
    terms = np.array([np.exp(cosines[j] - cosines[i]) for i, j in pairs])
    of_cosines = np.zeros(count)
    for (i, j), term in zip(pairs, terms):
        of_cosines[j] += term / (1 + terms.sum())
        of_cosines[i] -= term / (1 + terms.sum())
    gradient = (of_cosines / temperature)[:, np.newaxis, np.newaxis] * vectors[:, ::-1]
    return np.log1p(terms.sum()), gradient


def of_sizes(vectors, sizes, loss_of):
    """The mean loss, and its gradient by the vectors before they are made as long as 1."""
    loss, gradient = 0.0, np.zeros_like(vectors)
    for size in sizes:
        part = vectors[:, :, :size]
        norms = np.linalg.norm(part, axis=-1, keepdims=True)
        value, of_unit = loss_of(unit(part))
        loss += value / len(sizes)
        along = (of_unit * unit(part)).sum(-1, keepdims=True) * unit(part)
        gradient[:, :, :size] += (of_unit - along) / norms / len(sizes)
    return loss, gradient

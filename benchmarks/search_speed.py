"""Exact search, seconds: ours, in blocks of matrix products, and faiss's IndexFlatIP, in turn.

  python -m benchmarks.search_speed

Needs `faiss-cpu`. The documents are random directions of 384 components, the queries some of them
with noise. What both find is compared, too.
"""

import argparse
import time

import faiss
import numpy as np

from benchmarks import report
from similarity.nearest import nearest

SIZE, K = 384, 10


def directions(random: np.random.RandomState, count: int) -> np.ndarray:
    vectors = random.standard_normal((count, SIZE)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--queries", type=int, nargs="*", default=[1, 16, 200])
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    random, rows = np.random.RandomState(0), []
    for num_documents in args.documents:
        documents = directions(random, num_documents)
        index = faiss.IndexFlatIP(SIZE)
        index.add(documents)
        for num_queries in args.queries:
            queries = documents[:num_queries] + 0.05 * directions(random, num_queries)
            ours, theirs = [], []
            for _ in range(args.pairs):
                start = time.time()
                _, found = nearest(queries, documents, K)
                ours.append(time.time() - start)
                start = time.time()
                _, expected = index.search(queries, K)
                theirs.append(time.time() - start)
            rows.append({
                "documents": f"{num_documents:,}", "queries": num_queries,
                "ours, s": f"{np.median(ours):.3f}", "faiss, s": f"{np.median(theirs):.3f}",
                "faiss / ours": report.ratios(theirs, ours),
                "same documents": f"{np.mean(found == expected):.2%}"})
            print(rows[-1], flush=True)
    report.append(f"Exact search, {SIZE} components, the first {K}: seconds (median)", rows,
                  command="python -m benchmarks.search_speed",
                  versions={"NumPy": np.__version__, "faiss": faiss.__version__})


if __name__ == "__main__":
    main()

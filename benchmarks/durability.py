"""What it costs that nothing is lost: syncing a checkpoint, and checking one and a store.

  python -m benchmarks.durability --work_dir=DIR

saves BERT-base with its optimizer's slots (1.3 GB) into DIR, whose disk is measured. A run that
saves every 1,000 steps spends less than 1 % of its time on syncing if its steps take longer than
the seconds in the last column: 10 of them are 1 %.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from typing import Callable, List

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from engine.checkpoints import checkpoint_files
from engine.data import store
from engine.disk import files
from modeling import BertConfig, BertModel

import tensorflow.compat.v1 as tf

STORE_VALUES = 1 << 28  # token ids: 512 MB


def seconds(work: Callable[[], object]) -> float:
    start = time.time()
    work()
    return time.time() - start


def save_seconds(saver: tf.train.Saver, session: tf.Session, folder: str) -> List[float]:
    """Seconds in which TensorFlow writes a checkpoint, and all else that `save` does takes."""
    prefix = os.path.join(folder, "model.ckpt-1")
    written = seconds(lambda: saver.save(
        session, os.path.join(folder, "model.ckpt-0"), write_state=False, write_meta_graph=False))
    for name in os.listdir(folder):  # the next one finds a disk that is idle
        files.sync(os.path.join(folder, name))
    both = seconds(lambda: checkpoint_files.save(saver, session, prefix))
    return [written, max(both - written, 0)]


def checkpoint_figures(work_dir: str, repeats: int) -> np.ndarray:
    """Seconds to write, to sync and to check a checkpoint, [repeats, 3]."""
    figures = []
    with tf.Graph().as_default(), tf.Session() as session:
        BertModel(BertConfig(vocab_size=30522), False, tf.zeros([1, 8], tf.int32))
        for variable in tf.trainable_variables():
            for slot in ("adam_m", "adam_v"):
                tf.get_variable(f"{variable.op.name}/{slot}", variable.shape)
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver()
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(dir=work_dir) as folder:
                prefix = os.path.join(folder, "model.ckpt-1")
                saved = save_seconds(saver, session, folder)
                os.utime(f"{prefix}.index")  # what a process has saved itself, it does not check
                figures.append([*saved, seconds(lambda: checkpoint_files.damage(prefix))])
                print(figures[-1], flush=True)
    return np.array(figures)


def store_seconds(work_dir: str) -> float:
    """Seconds in which the values of a store are compared with their checksums."""
    folder = tempfile.mkdtemp(dir=work_dir)
    chunk = {"ids": (np.arange(STORE_VALUES // 64), np.array([STORE_VALUES // 64]))}

    def opened() -> store.Store:
        return store.open_or_build(folder, "s", {}, {"ids": store.Column("uint16", ragged=True)},
                                   lambda: [chunk] * 64)

    opened()
    result = seconds(opened)
    shutil.rmtree(folder)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    written, synced, checked = np.median(checkpoint_figures(args.work_dir, args.repeats), axis=0)
    report.append(
        "Durability, a checkpoint of BERT-base with slots (1.3 GB): seconds (median)",
        [{"TensorFlow writes it": f"{written:.2f}", "it is synced": f"{synced:.2f}",
          "it is checked on opening": f"{checked:.2f}",
          "512 MB of a store are checked": f"{store_seconds(args.work_dir):.2f}",
          "syncing is < 1 % if a step takes longer than": f"{synced / 10:.3f} s"}],
        command="python -m benchmarks.durability",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

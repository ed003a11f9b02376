"""What benchmarks/pretraining_quality.py trains on and measures with: no text is on both sides."""

from benchmarks import pretraining_quality as quality

import tensorflow.compat.v1 as tf


def test_every_third_document_is_held_out_whole(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\na\nb\n\nc\n\n \n\nd\ne\n\nf\n")
    documents = quality.documents_of(str(path))
    assert documents == ["a\nb", "c", "d\ne", "f"]
    assert quality.split_documents(documents, 3) == (["a\nb", "c", "f"], ["d\ne"])


def test_reviews_count_once_and_those_of_the_dev_set_do_not(tmp_path):
    (tmp_path / "train.tsv").write_text("label\ttext_a\n1\t好\n0\t坏\n1\t好\n1\t房间 \"大\n",
                                        encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("label\ttext_a\n0\t坏\n", encoding="utf-8")
    assert quality.training_reviews(str(tmp_path)) == [("1", "好"), ("1", "房间 \"大")]


def test_the_most_frequent_token_is_counted_among_masked_tokens_alone(tmp_path):
    path = str(tmp_path / "examples.tfrecord")
    with tf.python_io.TFRecordWriter(path) as writer:
        for ids, weights in (([7, 7, 3], [1, 1, 0]), ([3, 5, 0], [1, 1, 0])):
            example = tf.train.Example()
            feature = example.features.feature
            feature["masked_lm_ids"].int64_list.value.extend(ids)
            feature["masked_lm_weights"].float_list.value.extend(weights)
            writer.write(example.SerializeToString())
    assert quality.most_frequent_share(path) == 2 / 4

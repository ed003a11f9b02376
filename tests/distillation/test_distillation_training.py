"""Teacher and student in one graph: the teacher stays as it is, and the student learns."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from conftest import checkpoint_values, plain_session
from distillation import model, teacher
from engine.model import INFERENCE
from engine.training import checkpoint_hook
from trainings import settings, train


@pytest.fixture(scope="module")
def taught(tiny_classifier):
    """A teacher of 2 layers."""
    return teacher.load(str(tiny_classifier))


def distil(bert, taught, source, num_replicas, run_settings):
    """Trains a student of one layer that starts with the model's; returns its checkpoint."""
    forward = model.intermediate(bert.config(num_hidden_layers=1), taught, attention=True)
    return train(bert, source, num_replicas, run_settings, forward=forward)


def test_the_teacher_stays_as_it_is_on_every_replica_and_in_no_checkpoint(
        tiny_model, taught, source, tmp_path, monkeypatch):
    held, original = [], checkpoint_hook.SaveHook.end

    def end(self, session):
        session.graph._unsafe_unfinalize()  # to read copies, which are plain handles
        for variable in tf.local_variables():
            if variable.name.startswith(teacher.SCOPE + "/"):
                name = variable.op.name[len(teacher.SCOPE) + 1:]
                held.extend((name, value) for value in session.run([
                    tf.raw_ops.ReadVariableOp(resource=copy.handle, dtype=copy.dtype) for copy in variable.values]))
        original(self, session)

    monkeypatch.setattr(checkpoint_hook.SaveHook, "end", end)
    student = distil(tiny_model, taught, source, 2, settings(tmp_path, 8, num_train_steps=6))
    expected = checkpoint_values(taught.checkpoint.path)
    encoder = [name for name in taught.checkpoint.parameters()
               if name.startswith("bert/") and "/pooler/" not in name]  # no state needs it
    assert sorted(name for name, _ in held) == sorted(2 * encoder)
    for name, value in held:
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert not [name for name in student if name.startswith(teacher.SCOPE)]
    start = checkpoint_values(tiny_model.init_checkpoint)["bert/embeddings/word_embeddings"]
    assert np.abs(student["bert/embeddings/word_embeddings"] - start).max() > 1e-4


def test_distilling_brings_the_students_states_and_scores_to_its_teachers(
        tiny_model, taught, source, tmp_path):
    """The loss over the same examples, before and after."""
    forward = model.intermediate(tiny_model.config(num_hidden_layers=1), taught, attention=True)
    features = source.fetch(np.arange(40), 16)
    trained = distil(tiny_model, taught, source, 1,
                     settings(tmp_path / "out", 16, num_train_steps=40, learning_rate=3e-3))
    start = {**checkpoint_values(tiny_model.init_checkpoint),
             "projection/kernel": np.eye(16), "projection/bias": np.zeros(16)}
    loss = forward({name: tf.constant(value) for name, value in features.items()}, INFERENCE).loss
    values = []
    with plain_session() as session:
        session.run(tf.local_variables_initializer())
        for held in (start, trained):
            for variable in tf.global_variables():
                variable.load(held[variable.op.name], session)
            values.append(session.run(loss))
    assert values[1] < 0.7 * values[0]

"""Teacher and student in one graph: the teacher stays as it is."""

import numpy as np
import tensorflow.compat.v1 as tf

from conftest import checkpoint_values
from distillation import model, teacher
from engine.training import checkpoint_hook
from trainings import settings, train


def test_the_teacher_stays_as_it_is_on_every_replica_and_in_no_checkpoint(
        tiny_model, tiny_classifier, source, tmp_path, monkeypatch):
    held, original, taught = [], checkpoint_hook.SaveHook.end, teacher.load(str(tiny_classifier))

    def end(self, session):
        session.graph._unsafe_unfinalize()  # to read copies, which are plain handles
        for variable in tf.local_variables():
            if variable.name.startswith(teacher.SCOPE + "/"):
                name = variable.op.name[len(teacher.SCOPE) + 1:]
                held.extend((name, value) for value in session.run([
                    tf.raw_ops.ReadVariableOp(resource=copy.handle, dtype=copy.dtype) for copy in variable.values]))
        original(self, session)

    monkeypatch.setattr(checkpoint_hook.SaveHook, "end", end)
    forward = model.intermediate(tiny_model.config(num_hidden_layers=1), taught, attention=True)
    student = train(tiny_model, source, 2, settings(tmp_path, 8, num_train_steps=6), forward=forward)
    expected = checkpoint_values(taught.checkpoint.path)
    encoder = [name for name in taught.checkpoint.parameters()
               if name.startswith("bert/") and "/pooler/" not in name]  # no state needs it
    assert sorted(name for name, _ in held) == sorted(2 * encoder)
    for name, value in held:
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert not [name for name in student if name.startswith(teacher.SCOPE)]
    start = checkpoint_values(tiny_model.init_checkpoint)["bert/embeddings/word_embeddings"]
    assert np.abs(student["bert/embeddings/word_embeddings"] - start).max() > 1e-4

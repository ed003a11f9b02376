"""Every route of the service, with every kind of model, beside what `runs.predict` writes."""

import base64
import hashlib
import json
import math
import re

import numpy as np
import pytest

import extract_features
import similarity_files
from commands import answers_of, run_here
from conftest import on_tensorflow_1, sentences
from serving import routes
from services import Service, assert_close, toy_models, write_model

pytestmark = on_tensorflow_1  # routes depend on no runtime; test_clients.py and test_page.py ask on the other


@pytest.fixture(scope="module")
def models(tiny_model, tmp_path_factory):
    folders = toy_models(tmp_path_factory.mktemp("models"), tiny_model)
    for name, labels in (("entailment", ["entailment", "not_entailment"]), ("colours", ["green", "red"])):
        folders[name] = str(tmp_path_factory.mktemp(name) / "model")
        write_model(folders[name], tiny_model, dict(
            kind="classes", labels=labels, label_separator="", takes_pairs=True))
    return folders


@pytest.fixture(scope="module")
def service(models):
    with Service(models) as service:
        yield service


def best_first(entry):
    """A classifier's entry as Text Embeddings Inference answers it."""
    if "probabilities" not in entry:
        return entry
    return sorted(({"score": score, "label": label} for label, score in
                   entry["probabilities"].items()), key=lambda each: -each["score"])


@pytest.mark.parametrize("name", ["classifier", "multi", "regression", "pairs", "tagger", "reader",
                                  "scorer", "vectors"])
def test_predict_answers_what_the_command_writes(name, service, models, tmp_path):
    texts = sentences(12, seed=5)
    if name not in ("classifier", "multi", "tagger", "vectors"):
        texts = [("cat", f"{text} [MASK]") for text in texts]
    expected = [best_first(entry) for entry in answers_of(models[name], texts, tmp_path)]
    route = f"/models/{name}/predict"
    batch = [[text] if isinstance(text, str) else list(text) for text in texts]
    answer = service.post(route, {"inputs": batch, "truncate": True})
    assert answer.status == 200
    assert_close(answer.body, expected)
    for text, wanted in zip(texts[:3], expected):  # one by one
        inputs = text if isinstance(text, str) else list(text)
        assert_close(service.post(route, {"inputs": inputs, "truncate": True}).body, wanted)


def test_a_list_of_one_text_is_a_text_and_a_list_of_two_texts_is_a_pair(service):
    alone = service.post("/predict", {"inputs": "the cat"}).body
    assert service.post("/predict", {"inputs": ["the cat"]}).body == alone
    assert service.post("/predict", {"inputs": [["the cat"]]}).body == [alone]
    pair = service.post("/models/pairs/predict", {"inputs": ["the cat", "a dog"]}).body
    assert {each["label"] for each in pair} == {"no", "yes"}
    wrong = service.post("/predict", {"inputs": ["the cat", "a dog"]})
    assert wrong.status == 422 and "[[text], [text], ...]" in wrong.body["error"]
    wrong = service.post("/models/pairs/predict", {"inputs": [["a", "b"], ["c"]]})
    assert (wrong.status, wrong.body["index"]) == (422, 1)
    wrong = service.post("/models/vectors/predict", {"inputs": [["a", "b"], ["c"]]})
    assert (wrong.status, wrong.body["index"]) == (422, 1)


def test_vectors_are_those_of_predict_under_both_interfaces(service):
    texts, named = sentences(5), "/models/vectors"
    entries = service.post(f"{named}/predict", {"inputs": [[text] for text in texts]}).body
    vectors = np.array([entry["vector"] for entry in entries])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        service.post(f"{named}/embed", {"inputs": texts, "normalize": True}).body, vectors, atol=1e-5)
    np.testing.assert_allclose(
        service.post(f"{named}/embed", {"inputs": texts[0]}).body, vectors[:1], atol=1e-5)
    body = {"input": texts, "model": "vectors", "encoding_format": "float"}
    for path in (f"{named}/v1/embeddings", "/v1/embeddings"):  # the body names the model, too
        answer = service.post(path, body).body
        np.testing.assert_allclose([each["embedding"] for each in answer["data"]], vectors, atol=1e-5)
        assert [each["index"] for each in answer["data"]] == list(range(5))
    words = sum(len(text.split()) + 2 for text in texts)  # [CLS] and [SEP]
    assert answer["usage"] == {"prompt_tokens": words, "total_tokens": words}


def test_vectors_that_are_not_normalized_are_the_means_of_the_states(service, models, tiny_model, tmp_path):
    texts = sentences(4)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    run_here(dict(tiny_model._asdict(), init_checkpoint=models["vectors"], input_file=tmp_path / "texts.txt",
                  layers=-1, pooling="mean", max_seq_length=24, num_cpu_replicas=1,
                  output_file=tmp_path / "vectors.npy"), extract_features)
    expected = np.load(str(tmp_path / "vectors.npy"))
    assert np.abs(np.linalg.norm(expected, axis=1) - 1).min() > 0.1
    for more, columns in ({}, None), ({"dimensions": 4}, 4):
        body = {"inputs": texts, "normalize": False, **more}
        np.testing.assert_allclose(
            service.post("/models/vectors/embed", body).body, expected[:, :columns], atol=1e-4)


def test_a_route_without_a_name_goes_to_the_first_model_that_has_it(service):
    texts = {"query": "the [MASK] dog", "texts": ["cat", "bird"]}
    named = service.post("/models/scorer/rerank", texts)  # the first of those that take pairs
    assert service.post("/rerank", texts).body == named.body and named.status == 200
    assert service.post("/embed", {"inputs": "cat"}).status == 200
    assert service.post("/embed_all", {"inputs": "cat"}).status == 424  # no model has it


def test_an_unknown_field_is_refused_beside_those_that_there_are(service):
    for path, body, wrong, right in (
            ("/rerank", {"query": "the cat", "txts": ["a dog"]}, "txts", "query, texts, return_text"),
            ("/predict", {"inputs": "the cat", "topk": 3}, "topk", "options, inputs"),
            ("/", {"inputs": "the cat", "normalise": False}, "normalise", "inputs")):
        answer = service.post(path, body)
        assert answer.status == 400 and answer.body["error"].startswith(f"`{wrong}` is no field of this route; it has ")
        assert answer.body["error"].endswith(right) and "dimensions" not in answer.body["error"]
    # Hugging Face's clients send `options`; OpenAI's send fields of other services.
    assert service.post("/predict", {"inputs": "the cat", "options": {"wait_for_model": True}}).status == 200
    assert service.post("/v1/embeddings", {"input": "cat", "user": "me", "input_type": "query"}).status == 200


def test_null_says_nothing_whether_there_is_such_a_field_or_not(service):
    compared = {"source_sentence": "the cat", "sentences": ["a dog"]}
    for path, body in (("/rerank", {"query": "the [MASK] dog", "texts": ["cat"]}), ("/predict", {"inputs": "the cat"}),
                       ("/embed", {"inputs": "the cat"}), ("/similarity", {"inputs": {**compared, "top_k": None}}),
                       ("/predict", {"inputs": "the cat", "parameters": {"top_k": None}})):
        answer = service.post(path, {**body, "truncate": None, "of_other_services": None})
        assert answer.status == 200 and answer.body == service.post(path, body).body, answer.body


def test_an_unknown_field_beside_the_texts_that_are_compared_is_refused(service):
    answer = service.post("/similarity", {"inputs": {
        "source_sentence": "the cat", "sentences": ["a dog"], "sentence": ["a bird"]}})
    assert answer.status == 422 and answer.body["error"].startswith("`inputs.sentence`: [\"a bird\"] is not served")


def test_an_odd_host_changes_no_answer(service):
    """The path is the request's, whatever the host says."""
    for host in ("[", "a/v1/embeddings?", "[::1"):
        for path, key in (("/nowhere", "error"), ("/v1/nowhere", "message")):
            answer = service.get(path, host=host)
            assert answer.status != 500 and key in answer.body


def test_dimensions_cut_vectors_to_the_length_1_again(service):
    texts, named = sentences(3), "/models/vectors"
    whole = np.array(service.post(f"{named}/embed", {"inputs": texts}).body)
    for size in (1, whole.shape[1]):
        expected = whole[:, :size] / np.linalg.norm(whole[:, :size], axis=1, keepdims=True)
        vectors = service.post(f"{named}/embed", {"inputs": texts, "dimensions": size}).body
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
        answer = service.post(f"{named}/embeddings", {"input": texts, "dimensions": size}).body
        np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, atol=1e-5)
    for size in (0, -1, whole.shape[1] + 1, 1.5, "4"):
        answer = service.post(f"{named}/embed", {"inputs": texts, "dimensions": size})
        assert answer.status == 422 and "`dimensions`" in answer.body["error"] and str(size) in answer.body["error"]


def test_a_model_s_prompt_of_queries_is_put_before_texts(tiny_model, tmp_path):
    with Service({"m": similarity_files.write_model(tmp_path / "m", tiny_model, query_prefix="the ")}) as service:
        assert_close(service.post("/embed", {"inputs": "cat", "prompt_name": "query"}).body,
                     service.post("/embed", {"inputs": "the cat"}).body)
        refused = service.post("/embed", {"inputs": "cat", "prompt_name": "passage"})
        assert (refused.status, refused.body["error"]) == (
            422, "`prompt_name`: the model has query alone, not \"passage\"")
        assert service.post("/v1/embeddings", {"model": "any", "input": "cat"}).status == 200  # one model


def test_fields_of_other_services_are_refused_by_name_and_value(service):
    for route, field, value in [
            ("embed", "truncation_direction", "Left"), ("embed", "prompt_name", "query"),
            ("embed", "encoding_format", "base64"), ("predict", "raw_scores", True), ("similarity", "dimensions", 4)]:
        inputs = {"source_sentence": "a", "sentences": ["b"]} if route == "similarity" else "a"
        answer = service.post(f"/models/vectors/{route}", {"inputs": inputs, field: value})
        assert answer.status == 422 and answer.body["error"].startswith(f"`{field}`: ")
        assert re.search(rf"not {json.dumps(value)}$|: {json.dumps(value)} is not served; leave it out$",
                         answer.body["error"])
    for route, request in routes.REQUESTS.items():
        with pytest.raises(routes.Refusal, match="`parameters.top_k`: 2 is not served"):
            request.read(b'{"parameters": {"top_k": 2}}')
            raise AssertionError(route)
    for value in ("Right", "right", None):
        assert service.post("/models/vectors/embed", {
            "inputs": "a", "truncation_direction": value}).status == 200
    answer = service.post("/decode", {"ids": [1.5]})
    assert answer.status == 422 and answer.body["error"].startswith("`ids`: Input should be a valid integer")
    assert "not read" not in answer.body["error"]
    for route in ("embed_all", "embed_sparse"):
        answer = service.post(f"/models/vectors/{route}", {"inputs": "a"})
        assert answer.status == 424 and "model is not a model that gives" in answer.body["error"]


def test_tokens_are_those_that_the_model_reads_and_decode_to_the_text(service):
    texts = ["the cat sees a dog", "unknown: \U0001f600 !"]
    tokens = service.post("/tokenize", {"inputs": texts}).body
    assert [token["text"] for token in tokens[0]] == ["[CLS]", *texts[0].split(), "[SEP]"]
    assert [token["special"] for token in tokens[0]] == [True, *[False] * 5, True]
    ids = [[token["id"] for token in row] for row in tokens]
    bare = service.post("/tokenize", {"inputs": texts[0], "add_special_tokens": False}).body
    assert [token["id"] for token in bare[0]] == ids[0][1:-1]
    assert service.post("/decode", {"ids": ids}).body[0] == texts[0]
    assert service.post("/decode", {"ids": ids[0], "skip_special_tokens": False}).body == [
        f"[CLS] {texts[0]} [SEP]"]
    wrong = service.post("/decode", {"ids": [ids[0], [10 ** 9]]})
    assert (wrong.status, wrong.body["index"]) == (422, 1)


@pytest.mark.parametrize("path, name, body", [
    ("/predict", "pairs", {"inputs": ["the cat", "a dog"]}), ("/tokenize", "tagger", {"inputs": "the cat"}),
    ("/decode", "vectors", {"ids": [5, 6]}), ("/", "pairs", {"query": "a cat", "texts": ["the dog"]})])
def test_the_model_in_the_body_answers_on_every_route(path, name, body, service):
    named = service.post(f"/models/{name}{path}", body)
    assert named.status == 200
    assert_close(service.post(path, {**body, "model": name}).body, named.body)
    refused = service.post(path, {**body, "model": "other"})
    assert refused.status == 404 and name in refused.body["error"]
    assert service.post(f"/models/{name}{path}", {**body, "model": "other"}).status == 200


def test_the_page_of_a_model_is_found_without_the_last_slash(service):
    answer = service.get("/models/tagger")
    assert (answer.status, answer.headers["location"]) == (308, "tagger/")  # relative: beside a proxy's path
    assert service.get("/models/tagger/").status == 200


def test_a_client_may_leave_out_the_route(service):
    for path, route in (("/", "/predict"), ("/models/tagger", "/predict"),
                        ("/models/vectors/", "/embed"), ("/models/pairs/", "/rerank")):
        texts = {"query": "the cat", "texts": ["a dog"]} if route == "/rerank" else {"inputs": "the cat sees"}
        body = {**texts, "truncate": None}
        named = path.rstrip("/") + route
        assert_close(service.post(path, body).body, service.post(named, body).body)


def test_similarity_is_the_cosine_of_vectors(service):
    texts = sentences(4)
    vectors = np.array(service.post("/models/vectors/embed", {"inputs": texts}).body)
    answer = service.post("/models/vectors/similarity", {
        "inputs": {"source_sentence": texts[0], "sentences": texts[1:]},
        "parameters": {"truncate": True}})
    np.testing.assert_allclose(answer.body, vectors[1:] @ vectors[0], atol=1e-5)
    assert max(service.post("/models/vectors/similarity", {"inputs": {
        "source_sentence": text, "sentences": texts}}).body[index] for index, text in enumerate(texts)) <= 1
    body = {"inputs": {"source_sentence": "the cat " * 200, "sentences": ["the dog"]}}
    assert [service.post("/models/vectors/similarity", {**body, **extra}).status for extra in (
        {}, {"truncate": True}, {"parameters": {"truncate": True}})] == [413, 200, 200]


@pytest.mark.parametrize("name", ["pairs", "entailment", "regression", "scorer"])
def test_rerank_sorts_texts_by_the_score_of_their_pair_with_the_query(name, service):
    query, texts = "the cat [MASK] today", sentences(6, seed=2)
    if name == "scorer":  # which phrase fits the query's slot
        texts = ["cat", "dog", "bird", "tree", "house", "river"]
    pairs = [[text, query] if name == "scorer" else [query, text] for text in texts]
    predicted = service.post(f"/models/{name}/predict", {"inputs": pairs, "truncate": True}).body
    scores = [1 / (1 + math.exp(-each["value"])) if name == "regression" else next(
        one["score"] for one in each if one["label"] in ("yes", "entailment", "fits")) for each in predicted]
    answer = service.post(f"/models/{name}/rerank", {
        "query": query, "texts": texts, "truncate": True, "return_text": True}).body
    order = sorted(range(6), key=lambda index: -scores[index])
    assert [rank["index"] for rank in answer] == order
    assert [rank["text"] for rank in answer] == [texts[index] for index in order]
    np.testing.assert_allclose([rank["score"] for rank in answer], sorted(scores)[::-1], atol=1e-5)
    raw = service.post(f"/models/{name}/rerank", {"query": query, "texts": texts, "truncate": True, "raw_scores": True})
    if name == "regression":
        np.testing.assert_allclose([rank["score"] for rank in raw.body], sorted(
            (each["value"] for each in predicted), reverse=True), atol=1e-5)
    else:
        assert raw.status == 422 and "raw_scores" in raw.body["error"]


def test_choices_are_answered_best_first_however_many(service):
    info = service.get("/models/choice/info").body
    assert info["texts"] == {"least": 3, "most": None, "names": ["Question", "Choice"]}
    assert info["kind"] == "multiple_choice" and info["takes_pairs"] is False and "/rerank" not in info["routes"]
    rows = [["the tree", "a house", "old cat", "river"], ["a river", "small dog", "green"]]
    answers = service.post("/models/choice/predict", {"inputs": rows}).body
    assert [{each["label"] for each in answer} for answer in answers] == [set(row[1:]) for row in rows]
    for answer in answers:
        assert answer == sorted(answer, key=lambda each: -each["score"])
        assert sum(each["score"] for each in answer) == pytest.approx(1, abs=1e-6)
    assert_close(service.post("/models/choice/predict", {"inputs": rows[0]}).body, answers[0])
    refused = service.post("/models/choice/predict", {"inputs": [rows[0], ["a question", "a choice"]]})
    assert (refused.status, refused.body["index"]) == (422, 1)
    assert "[question, choice, choice, ...]" in refused.body["error"]


def test_a_route_that_the_model_does_not_have_answers_424(service):
    bodies = {"/embed": {"inputs": "a"}, "/v1/embeddings": {"input": "a"},
              "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
              "/rerank": {"query": "a", "texts": ["b"]}, "/predict": {"inputs": "a"}}
    for name in ("classifier", "tagger", "reader", "vectors", "pairs", "colours"):
        served = service.get(f"/models/{name}/info").body["routes"]
        for route in set(bodies) - set(served):
            answer = service.post(f"/models/{name}{route}", bodies[route])
            assert answer.status == 424 and "model is not a" in json.dumps(answer.body)
    refused = service.post("/models/classifier/embed", {"inputs": "a"})
    assert refused.body == {"error": "model is not an embedding model; see /predict",
                            "error_type": "backend"}
    assert service.post("/models/classifier/v1/embeddings", {"input": "a"}).body == {
        "message": refused.body["error"], "code": 424, "type": "backend"}


def test_a_text_that_is_too_long_is_refused_by_its_index_unless_it_may_be_cut(service):
    inputs = [["a cat"], ["the " * 30]]
    answer = service.post("/predict", {"inputs": inputs})
    assert (answer.status, answer.body["error_type"], answer.body["index"]) == (413, "validation", 1)
    assert "32 tokens" in answer.body["error"] and "24" in answer.body["error"]
    assert service.post("/predict", {"inputs": inputs, "truncate": True}).status == 200


def test_a_text_that_cannot_be_read_is_refused_by_its_index(service):
    answer = service.post("/models/scorer/predict", {"inputs": [
        ["cat", "the [MASK]"], ["cat", "no slot"]]})
    assert (answer.status, answer.body["error_type"], answer.body["index"]) == (422, "tokenizer", 1)


def test_odd_texts_are_read_by_every_kind(service, models):
    odd = ["", " ", "\x00", "[SEP][CLS]", "\u202e\u200f", "\U0001f600" * 9, "e\u0301",
           "a" * 300, "\ufffe\ufeff", "%s{}", "中文 [MASK]"]
    for name in models:
        least = service.get(f"/models/{name}/info").body["texts"]["least"]
        for first, second in zip(odd, odd[::-1]):
            answer = service.post(f"/models/{name}/predict", {
                "inputs": [first, *(least - 1) * [second]] if least > 1 else first, "truncate": True})
            assert answer.status == 200 or (name, answer.status) == ("scorer", 422), (
                name, first, second, answer.body)
    assert service.post("/models/reader/predict", {"inputs": ["what", ""]}).body == {
        "answer": "", "probability": 0.0}


def test_info_says_what_clients_of_text_embeddings_inference_ask(service, models):
    info = service.get("/info").body
    assert info["model_id"] == "classifier" and info["models"] == list(models)
    assert info["model_type"] == {"classifier": {"id2label": {"0": "0", "1": "1"},
                                                 "label2id": {"0": 0, "1": 1}}}
    assert info["max_input_length"] == 24 and info["max_client_batch_size"] == 256
    assert service.get("/models/vectors/info").body["model_type"] == {
        "embedding": {"pooling": "mean"}}
    assert service.get("/models/tagger/info").body["model_type"] == {"tags": {}}
    pairs = service.get("/models/pairs/info").body
    assert pairs["model_type"]["reranker"]["id2label"] == {"0": "no", "1": "yes"}
    assert pairs["served_model_name"] == "pairs"


def test_health_metrics_and_the_description_of_the_routes(service):
    assert service.get("/health").status == service.get("/ping").status == 200
    assert service.get("/health", method="HEAD").body == ""
    service.post("/predict", {"inputs": [["the cat"], ["a dog"]]})
    page = service.get("/metrics").body
    assert 'serving_requests_total{model="classifier",route="/predict",status="200"}' in page
    assert 'serving_queued_tokens{model="vectors"} 0.0' in page
    paths = service.get("/openapi.json").body["paths"]
    assert all(route in paths and f"/models/tagger{route}" in paths for route in routes.REQUESTS)
    for path in paths:
        assert service.get(path).status == (200 if "get" in paths[path] else 405)


def test_the_page_may_run_its_own_code_alone(service):
    answer = service.get("/")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    for element in ("script", "style"):
        code, = re.findall(f"<{element}>(.*?)</{element}>", answer.body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"

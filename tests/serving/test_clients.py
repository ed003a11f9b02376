"""The clients that others have written ask a service; TensorFlow 2.15's Python alone has their packages."""

import numpy as np
import pytest

from conftest import sentences
from services import RELEASE, Service
from similarity_files import write_model

openai = pytest.importorskip("openai")
huggingface_hub = pytest.importorskip("huggingface_hub")
langchain_openai = pytest.importorskip("langchain_openai")
TEXTS = ["the cat sees a dog", "a bird", "the old house"]


@pytest.fixture(scope="module")
def service(tiny_model, tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("models") / "vectors", tiny_model)
    service = Service({"vectors": folder, "classifier": f"{RELEASE}/classifier"})
    yield service
    assert service.stop() == 0


@pytest.fixture(scope="module")
def url(service):
    return f"http://127.0.0.1:{service.port}"


@pytest.fixture(scope="module")
def vectors(service):
    return np.array(service.post("/embed", {"inputs": TEXTS}).body)


def test_openai(url, vectors):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["vectors", "classifier"]

    def embed(texts, model="vectors", **options):
        answer = client.embeddings.create(model=model, input=texts, **options)
        return np.array([each.embedding for each in answer.data])

    np.testing.assert_allclose(embed(TEXTS), vectors, atol=1e-5)  # the client asks for base64
    assert embed(TEXTS[0], encoding_format="float", dimensions=4).shape == (1, 4)
    many = sentences(1000)
    places = [0, 255, 256, 999]  # they are computed in parts of 256
    np.testing.assert_allclose(embed(many)[places], embed([many[place] for place in places]), atol=1e-5)
    with pytest.raises(openai.NotFoundError, match="those served are vectors, classifier"):
        embed(TEXTS, model="text-embedding-3-small")
    with pytest.raises(openai.UnprocessableEntityError, match="token ids are not read"):
        embed([[5, 6]])
    with pytest.raises(openai.APIStatusError, match="not an embedding model"):
        embed(TEXTS, model="classifier")


def test_huggingface_hub(url, service, vectors):
    client = huggingface_hub.InferenceClient(model=f"{url}/models/vectors")
    np.testing.assert_allclose(client.feature_extraction(
        TEXTS[0], truncate=True, truncation_direction="Right", normalize=True), vectors[:1], atol=1e-5)
    np.testing.assert_allclose(client.sentence_similarity(
        TEXTS[0], TEXTS[1:], model=f"{url}/models/vectors/similarity"), vectors[1:] @ vectors[0], atol=1e-5)
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError) as caught:
        client.feature_extraction(TEXTS[0], truncation_direction="Left")
    assert caught.value.response.status_code == 422
    assert "`truncation_direction`" in caught.value.response.json()["error"]
    best = client.text_classification(TEXTS[0], model=f"{url}/models/classifier/")  # the first alone
    scores = service.post("/models/classifier/predict", {"inputs": TEXTS[0]}).body
    assert best.label == scores[0]["label"] and best.score == pytest.approx(scores[0]["score"], abs=1e-5)


def test_langchain(url, vectors):
    embeddings = langchain_openai.OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key="none", model="vectors", check_embedding_ctx_length=False)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(embeddings.embed_query(TEXTS[1]), vectors[1], atol=1e-5)

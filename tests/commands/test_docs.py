"""What the README and the pages in docs/ say is there, and works."""

import glob
import importlib
import json
import os
import re
import shlex
import subprocess

import pytest
from absl import flags

from benchmarks import page_tables
from conftest import ROOT
from engine.cli import command
from engine.devices import runtime
from engine.workers import cluster
from pages import blocks, text_of
from pretraining import run
from scripts.flags_page import commands
from shell_scripts import forking_python_fixture  # noqa: F401 (a fixture)
from tasks import processors

PAGES = ["README.md"] + sorted(os.path.join("docs", name)
                               for name in os.listdir(os.path.join(ROOT, "docs"))
                               if name.endswith(".md"))
# absl's, TensorBoard's, Docker's, SLURM's (as far as the first hyphen)
OTHER_FLAGS = {"help", "flagfile", "logdir", "gpus", "shm", "ulimit", "nodes", "ntasks", "array",
               "wrap", "build", "model_config_file", "enable_batching", "batching_parameters_file"}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page):
    """Path and anchor of each link into the repository, from the root."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            yield path, anchor


def modules_named(page):
    """The modules that the page runs with `python -m`, `.name` after another one included."""
    for line in text_of(page).split("\n"):
        for name in re.findall(r"python -m ((?:[a-z]\w*\.)+\w+)", line):
            yield name
            if line.startswith("|"):
                room = name.split(".")[0]
                yield from (room + other for other in re.findall(r", `(\.[a-z]\w*)`", line))


def run_blocks(shell_commands, directory, python):
    """Runs shell commands of a page as a reader does, but with their files in a directory."""
    script = f"""set -euo pipefail
python() {{ "{python}" "$@"; }}
{shell_commands}"""
    result = subprocess.run(
        ["bash", "-c", script], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": ROOT, "CUDA_VISIBLE_DEVICES": ""}, encoding="utf-8")
    assert result.returncode == 0, result.stdout


def expected_range(page, what):
    """The range that the page says to expect of something: `what` 0.27 – 0.29."""
    low, high = re.search(rf"{what} ([\d.,]+) – ([\d.,]+)", text_of(page)).groups()
    return tuple(float(value.replace(",", "")) for value in (low, high))


def test_the_readme_is_a_front_door():
    assert len(text_of("README.md").split()) <= 1000


def test_every_page_is_one_click_from_the_readme():
    linked = {path for path, _ in links("README.md")}
    assert [page for page in PAGES[1:] if page not in linked] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for path, anchor in links(page):
        assert os.path.exists(os.path.join(ROOT, path)), path
        assert not anchor or anchor in anchors(path), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_are_there(page):
    rooms = "|".join(name for name in os.listdir(ROOT)
                     if name.isalpha() and os.path.isdir(os.path.join(ROOT, name)))
    names = re.findall(rf"(?<![\w/])((?:{rooms})/[\w/]+\.(?:md|py|sh|png))\b", text_of(page))
    assert [name for name in names if not os.path.exists(os.path.join(ROOT, name))] == []


def test_the_tree_names_files_that_are_there():
    tree, = blocks("docs/architecture.md", "text")
    room, missing = "", []
    for line in tree.split("\n"):
        if not line.startswith(" "):
            room = next(iter(re.findall(r"^\S+/(?=\s|$)", line)), "")
        missing += [room + name for name in re.findall(r"[\w.]+\.(?:py|j2)", line)
                    if not os.path.exists(os.path.join(ROOT, room, name))]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_named_exist(page):
    for name in modules_named(page):
        assert os.path.exists(os.path.join(ROOT, *name.split(".")) + ".py"), name


def test_each_benchmark_is_quoted_by_a_page_or_is_part_of_another_one():
    sources = {path: text_of(os.path.relpath(path, ROOT))
               for path in glob.glob(os.path.join(ROOT, "benchmarks", "**", "*.py"), recursive=True)}
    pages = "".join(map(text_of, [*PAGES, "benchmarks/scaling.md"]))
    unused = []
    for path in sources:
        module = os.path.relpath(path, ROOT)[:-len(".py")].replace(os.sep, ".")
        package, _, name = module.rpartition(".")
        others = "".join(text for other, text in sources.items() if other != path)
        if name != "__init__" and not re.search(rf"{re.escape(module)}\b", pages + others) and not (
                re.search(rf"from {re.escape(package)} import .*\b{name}\b", others)):
            unused.append(module)
    assert unused == []


def test_every_command_has_a_row_in_the_readme():
    files = {name[:-len(".py")] for name in re.findall(r"`python (\w+\.py)`", text_of("README.md"))}
    assert set(commands()) <= {*files, *modules_named("README.md")}


def test_flags_that_are_named_exist():
    known = set(OTHER_FLAGS)
    for name in commands():
        values = importlib.import_module(name).define_flags()
        assert isinstance(values, flags.FlagValues)
        known |= set(values) | {f"no{flag}" for flag in values if values[flag].boolean}
    for path in glob.glob(os.path.join(ROOT, "benchmarks", "**", "*.py"), recursive=True):
        known |= set(re.findall(r'"--(\w+)"', text_of(path)))
    theirs = {f"{no}{name}" for names in re.findall("^([^#\n:]+):", text_of("docs/flags-of-others.txt"), re.MULTILINE)
              for name in names.split() for no in ("", "no")}
    unknown = {page: set(re.findall(r"(?<![\w-])--(\w+)", text_of(page))) - known
               - (theirs if page == "docs/from-elsewhere.md" else set())
               for page in PAGES if page != "docs/flags.md"}  # which is made of the definitions
    assert {page: names for page, names in unknown.items() if names} == {}


def test_the_processor_of_the_docs_reads_nested_sentiment_json(tmp_path):
    code, = blocks("docs/your-data.md", "python")
    (tmp_path / "mine.py").write_text(code)
    rows = [("不错", "2"), ("一般", "1"), ("很差", "0")]
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("".join(
            json.dumps({"comment": text, "items": [{"sentiment": sentiment}]}) + "\n"
            for text, sentiment in rows))
    task = processors.make_task(f"{tmp_path}/mine.py:SentimentProcessor", str(tmp_path))
    examples = list(task.train.examples(task.kind))
    assert [(example.texts[0], task.kind.labels[example.label]) for example in examples] == [
        ("不错", "positive"), ("很差", "negative")]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, forking_python):
    """Where the first commands of the page on pretraining have run."""
    if runtime.IS_TENSORFLOW_1:
        pytest.skip("the pages show what TensorFlow 2.15 prints")
    directory = tmp_path_factory.mktemp("pages")
    run_blocks(blocks("docs/pretraining.md", "shell")[0], directory, forking_python)
    return directory


def test_pretraining_ends_as_its_page_says(pretrained):
    low, high = expected_range("docs/pretraining.md", "`masked_lm_accuracy`")
    results = (pretrained / "out/pretrained/eval_results.txt").read_text()
    assert low <= float(re.search(r"masked_lm_accuracy = (.*)", results).group(1)) <= high


def test_augmentation_ends_as_its_page_says(pretrained, forking_python):
    run_blocks(blocks("docs/augmentation.md", "shell")[0], pretrained, forking_python)
    low, high = expected_range("docs/augmentation.md", "`run_classifier.py`:")
    rows = (pretrained / "out/augmented/train.tsv").read_text().splitlines()
    assert low <= len(rows) <= high


def test_the_glossary_says_what_a_run_says(pretrained, monkeypatch, capfd):
    text = blocks("docs/glossary.md", "shell")[0].replace("\\\n", "")
    monkeypatch.chdir(pretrained)
    command.run(run.main, run.define_flags(), usage="", argv=shlex.split(text)[2:])
    expected = re.search(r"\*\*Expect\*\* `(.*?)`", text_of("docs/glossary.md")).group(1)
    assert expected in capfd.readouterr().err


def test_tables_in_pages_are_those_of_the_newest_results():
    texts = [text_of(os.path.relpath(path, ROOT)) for path in page_tables.paths()]
    assert [page_tables.rewritten(text) for text in texts] == texts
    assert sum(text.count("<!-- table:") for text in texts) == 5


def test_the_jobs_of_kubernetes_are_a_cluster_of_all_their_pods():
    """Each pod's variable, as Kubernetes makes it, names the pod's own address under the service."""
    yaml = pytest.importorskip("yaml")
    text, = blocks("docs/several-machines.md", "yaml")
    service, job = yaml.safe_load_all(text)
    pod = job["spec"]["template"]["spec"]
    (container,), name = pod["containers"], job["metadata"]["name"]
    index, config = (entry for entry in container["env"])
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
    count = job["spec"]["completions"]
    assert job["spec"]["completionMode"] == "Indexed" and job["spec"]["parallelism"] == count
    for number in range(count):
        found = cluster.from_environment({
            "TF_CONFIG": config["value"].replace(f"$({index['name']})", str(number))})
        assert (len(found.addresses), found.index) == (count, number)
        assert found.addresses[number].split(":")[0] == f"{name}-{number}.{pod['subdomain']}"
    again = {status: rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]
             for status in rule["onExitCodes"]["values"]}
    assert again == {1: "FailJob", 2: "FailJob", cluster.PEER_LOST_STATUS: "Ignore"}

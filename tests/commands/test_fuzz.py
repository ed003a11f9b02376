"""Commands on damaged files and faulty disks.

  FUZZ_CASES=2500 FUZZ_SEED=2 scripts/test.sh tests/commands/test_fuzz.py    # a campaign of hours
"""

import os
import random

import pytest

import faulty_disk
import fuzz
import fuzz_mutations
from conftest import on_tensorflow_1

CASES, SEED = int(os.environ.get("FUZZ_CASES", 0)), os.environ.get("FUZZ_SEED", "tests")

pytestmark = [] if CASES else on_tensorflow_1


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Faults of the disk take minutes: a campaign alone has them."""
    folder = str(tmp_path_factory.mktemp("fuzz"))
    return fuzz.Campaign(folder, faulty_disk.library(folder) if CASES else None)


@pytest.mark.parametrize("number", range(CASES or 8))
def test_each_ends_in_one_line_or_as_if_nothing_had_happened(number, campaign):
    result = campaign.case(number, SEED)
    assert result["outcome"] in fuzz.OUTCOMES, result


def test_what_has_checksums_or_can_be_made_again_is_not_missed(campaign):
    scene, results = campaign.scenes["evaluating"], []
    campaign.undisturbed(scene.name)
    for begin in ("run_classifier/model.ckpt-8", "run_classifier/checkpoint", "run_classifier/run.json", "store/dev"):
        for path in fuzz.paths(os.path.join(scene.folder, begin)):
            file = os.path.relpath(path, scene.folder)
            folder = scene.copy_to(campaign.folder)
            what = fuzz_mutations.mutate(os.path.join(folder, file), random.Random(file))
            results.append(campaign.run_damaged(scene, fuzz.FILE, file, what, scene.arguments(folder)))
    assert [result for result in results if "log" in result] == []
    of_store = [result["outcome"] for result in results if "store/" in result["what"]]
    assert len(of_store) > 3 and set(of_store) == {fuzz.SAME}

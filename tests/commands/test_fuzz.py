"""Commands on damaged files, as in `benchmarks/fuzz.py`."""

import json

import processes
from conftest import on_tensorflow_1

CASES = 8  # the campaign has other ones

PROGRAM = """
import json, os, random, sys
from benchmarks import fuzz
from benchmarks.fuzzing import mutations
campaign, scene_name = fuzz.Campaign(sys.argv[1]), "evaluating"
at_random = [campaign.case(number, "tests") for number in range(int(sys.argv[2]))]
scene, each_file = campaign.scenes[scene_name], []
campaign.undisturbed(scene_name)
for begin in ("run_classifier/model.ckpt-8", "run_classifier/checkpoint", "run_classifier/run.json", "store/dev"):
    for path in fuzz.paths(os.path.join(scene.folder, begin)):
        folder, file = scene.copy_to(os.path.join(sys.argv[1], "case")), os.path.relpath(path, scene.folder)
        what = mutations.mutate(os.path.join(folder, file), random.Random(file))
        each_file.append(campaign.run_damaged(scene, fuzz.FILE, file, what, scene.arguments(folder)))
print(json.dumps([at_random, each_file]))
"""


@on_tensorflow_1
def test_each_ends_in_one_line_or_as_if_nothing_had_happened(tmp_path):
    process = processes.run(["-c", PROGRAM, str(tmp_path), str(CASES)])
    assert process.returncode == 0, process.stderr
    at_random, each_file = json.loads(process.stdout)
    outcomes = {result["outcome"] for result in at_random}
    assert {"refused"} < outcomes <= {"refused", "same results", "other input, succeeded", "went on"}, at_random
    assert [result for result in each_file if "log" in result] == []
    # What has checksums, or can be made again, is not missed.
    of_store = [result["outcome"] for result in each_file if "store/" in result["what"]]
    assert len(of_store) > 3 and set(of_store) == {"same results"}

"""Commands on damaged files, as in `benchmarks/fuzz.py`."""

import json

import processes
from conftest import on_tensorflow_1

CASES = 12  # the campaign has other ones

PROGRAM = """
import json, sys
from benchmarks import fuzz
fuzzer = fuzz.Fuzzer(sys.argv[1])
print(json.dumps([[fuzzer.case(number, "tests") for number in range(int(sys.argv[2]))],
                  list(fuzzer.each_file("evaluating", (
                      *(f"run_classifier/{name}" for name in ("model.ckpt-8", "checkpoint",
                                                              "run.json")), "store/dev")))]))
"""


@on_tensorflow_1
def test_each_ends_in_one_line_or_as_if_nothing_had_happened(tmp_path):
    process = processes.run(["-c", PROGRAM, str(tmp_path), str(CASES)])
    assert process.returncode == 0, process.stderr
    at_random, each_file = json.loads(process.stdout)
    outcomes = {result["outcome"] for result in at_random}
    assert {"refused"} < outcomes <= {"refused", "same results", "other input, succeeded"}, at_random
    assert [result for result in each_file if "log" in result] == []
    # What has checksums, or can be made again, is not missed.
    of_store = [result["outcome"] for result in each_file if "store/" in result["damaged"]]
    assert len(of_store) > 3 and set(of_store) == {"same results"}

"""Commands on damaged files, as in `benchmarks/fuzz.py`."""

import json

import processes
from conftest import on_tensorflow_1

CASES = 30  # the campaign has other ones

PROGRAM = """
import json, sys
from benchmarks import fuzz
fuzzer = fuzz.Fuzzer(sys.argv[1])
print(json.dumps([[fuzzer.case(number, "tests") for number in range(int(sys.argv[2]))],
                  list(fuzzer.each_file("evaluating"))]))
"""


@on_tensorflow_1
def test_each_ends_in_one_line_or_as_if_nothing_had_happened(tmp_path):
    process = processes.run(["-c", PROGRAM, str(tmp_path), str(CASES)])
    assert process.returncode == 0, process.stderr
    at_random, each_file = json.loads(process.stdout)
    for results in (at_random, each_file):
        outcomes = {result["outcome"] for result in results}
        assert outcomes == {"refused", "same results", "other input, succeeded"}, [
            result for result in results if "log" in result]
    # What has checksums, or can be made again, is not missed.
    same = {result["damaged"].split("/")[-1] for result in each_file
            if result["outcome"] == "same results"}
    assert {"checkpoint", "store.json", "input_ids.values", "label.values"} <= same

"""Every command on files that are damaged at random, as in `benchmarks/fuzz.py`."""

import json

import processes
from conftest import on_tensorflow_1

CASES = 30  # the campaign has other ones

PROGRAM = """
import json, sys
from benchmarks import fuzz
fuzzer = fuzz.Fuzzer(sys.argv[1])
results = [fuzzer.case(number, "tests") for number in range(int(sys.argv[2]))]
print(json.dumps(results))
"""


@on_tensorflow_1
def test_each_ends_in_one_line_or_as_if_nothing_had_happened(tmp_path):
    process = processes.run(["-c", PROGRAM, str(tmp_path), str(CASES)])
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    outcomes = {result["outcome"] for result in results}
    assert outcomes == {"refused", "same results", "other input, succeeded"}, [
        result for result in results if "log" in result]

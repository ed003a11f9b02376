"""A machine that lacks what XLA needs on cards, as trees of files."""

import pytest

from engine.devices import xla_tools
from engine.errors import UserError

BOTH = ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas")


@pytest.fixture
def cuda(tmp_path, monkeypatch):
    """Makes a folder of CUDA with these files; the current folder has none."""
    monkeypatch.chdir(tmp_path)

    def make(name, *files):
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
            path.chmod(0o755)
        return str(tmp_path / name)
    return make


@pytest.mark.parametrize("files, needs_ptxas, missing", [
    (BOTH, True, []),
    (BOTH[:1], True, ["bin/ptxas"]),
    (BOTH[1:], True, ["nvvm/libdevice/libdevice.10.bc"]),
    ((), True, list(BOTH)),
    (BOTH[:1], False, []),  # TensorFlow 1.15
    ((), False, ["nvvm/libdevice/libdevice.10.bc"]),
])
def test_missing_parts_are_named_with_the_folders(cuda, files, needs_ptxas, missing):
    folders = [cuda("empty"), cuda("cuda", *files)]
    if not missing:
        xla_tools.check("", "", folders, needs_ptxas)
        return
    with pytest.raises(UserError) as error:
        xla_tools.check("", "", folders, needs_ptxas)
    line = str(error.value)
    assert "\n" not in line and "--xla_gpu_cuda_data_dir=" in line
    assert f"needs CUDA's {' and '.join(missing)} to" in line
    assert f"none of ./cuda_sdk_lib, {', '.join(folders)}: " in line


def test_parts_are_found_where_the_user_says(cuda):
    named = f"--xla_dump_to=x --xla_gpu_cuda_data_dir={cuda('elsewhere', *BOTH)}"
    xla_tools.check(named, "", [], needs_ptxas=True)
    folders = [cuda("cuda", BOTH[0])]
    xla_tools.check("", cuda("programs", "ptxas"), folders, needs_ptxas=True)
    xla_tools.check("--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found=true", "", folders,
                    needs_ptxas=True)

"""A machine that lacks what XLA needs on cards, as trees of files."""

import pytest

from engine.devices import runtime, xla_tools
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


@pytest.fixture
def check(monkeypatch):
    """Looks for the parts on a machine with these folders, flags of XLA and programs."""
    def check(folders, *, xla_flags="", search_path="", needs_ptxas=True):
        monkeypatch.setattr(runtime, "CUDA_FOLDERS", folders)
        monkeypatch.setattr(runtime, "XLA_NEEDS_PTXAS", needs_ptxas)
        monkeypatch.setenv("XLA_FLAGS", xla_flags)
        monkeypatch.setenv("PATH", search_path)
        xla_tools.check_here()
    return check


@pytest.mark.parametrize("files, needs_ptxas, missing", [
    (BOTH, True, []),
    (BOTH[:1], True, ["bin/ptxas"]),
    (BOTH[1:], True, ["nvvm/libdevice/libdevice.10.bc"]),
    ((), True, list(BOTH)),
    (BOTH[:1], False, []),  # TensorFlow 1.15
    ((), False, ["nvvm/libdevice/libdevice.10.bc"]),
])
def test_missing_parts_are_named_with_the_folders(cuda, check, files, needs_ptxas, missing):
    folders = [cuda("empty"), cuda("cuda", *files)]
    if not missing:
        check(folders, needs_ptxas=needs_ptxas)
        return
    with pytest.raises(UserError) as error:
        check(folders, needs_ptxas=needs_ptxas)
    line = str(error.value)
    assert "\n" not in line and "--xla_gpu_cuda_data_dir=" in line
    assert f"needs CUDA's {' and '.join(missing)} to" in line
    assert f"none of ./cuda_sdk_lib, {', '.join(folders)}: " in line


def test_parts_are_found_where_the_user_says(cuda, check):
    check([], xla_flags=f"--xla_dump_to=x --xla_gpu_cuda_data_dir={cuda('elsewhere', *BOTH)}")
    folders = [cuda("cuda", BOTH[0])]
    check(folders, search_path=cuda("programs", "ptxas"))
    check(folders, xla_flags="--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found=true")

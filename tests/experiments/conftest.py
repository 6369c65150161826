import pytest

from xcbench.data.catalog import load_dataset


@pytest.fixture(scope="session")
def lf_debian_4k(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XCBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        return load_dataset("lf-debian-4k")

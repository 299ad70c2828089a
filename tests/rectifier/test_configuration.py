"""The configuration file: what it can say, and how it is refused."""

from pathlib import Path

import pytest

from rectifier.configuration import read_configuration
from rectifier_core.errors import InputError

GOOD = """
[presets.strict]
base = "fast"
tau = 1.0

[pools.trial]
mode = "shadow"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rectifier.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_preset_starts_from_its_base(tmp_path: Path) -> None:
    found = read_configuration(written(tmp_path, GOOD))
    strict = found.presets["strict"]
    assert (strict.preset, strict.tau, strict.select) == ("strict", 1.0, "same_call")
    assert found.shadow_pools == {"trial"}
    assert found.pools["code"] == {"tau": 1.0}


def test_no_file_leaves_the_built_in_presets() -> None:
    assert "fast" in read_configuration(None).presets


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[presets.strict]\ncolour = 1", "presets.strict.colour"),
        ("[presets.strict]\ntau = 2", "presets.strict.tau"),
        ("[presets.strict]\nk_act = 20\nk_cand = 3", "presets.strict.k_act"),
        ('[presets.strict]\nbase = "none"', "presets.strict.base"),
        ("[presets.fast]\ntau = 1.0", "presets.fast"),
        ('[pools."No Name"]\ntau = 1.0', "pools.No Name.[key]"),
        ("[surprise]\na = 1", "surprise"),
        ('[pools.math]\npreset = "paper-v2"', "pools.math.preset"),
        ("[pools.math]\nk_cand = 1", "pools.math.k_act"),
    ],
)
def test_refusal_names_the_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InputError) as refused:
        read_configuration(written(tmp_path, text))
    assert refused.value.field == field
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("text", ["not toml", "a = ", "[x"])
def test_file_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="not TOML"):
        read_configuration(written(tmp_path, text))


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml: No such file"):
        read_configuration(tmp_path / "absent.toml")

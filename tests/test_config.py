"""Settings: their layers, their types, and how a wrong one is told."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmt.config import (
    Config,
    DataConfig,
    Layer,
    TrainConfig,
    convert,
    describe,
    did_you_mean,
    keys,
    parse_assignment,
    read_toml,
    resolve,
)
from nmt.errors import NmtError, UsageError
from nmt.models import BACKENDS


def layer(**tables: dict[str, object]) -> Layer:
    return Layer("recipe.toml", tables)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return str(path)


def test_the_keys_that_recipes_rely_on_exist() -> None:
    train = (
        "optimizer learning_rate schedule warmup label_smoothing r_drop clip_norm batch_tokens accumulate max_steps "
        "max_epochs max_minutes valid_every save_every log_every keep_last metric patience teacher_forcing average_last precision "
        "tensorboard seed"
    )
    common = "layers encoder_layers decoder_layers width dropout tie_embeddings start"
    transformer = "heads feed_forward attention_dropout positions"
    rnn = "cell attention context initial_state bidirectional"
    assert set(train.split()) <= set(keys(TrainConfig))
    assert "bpe_dropout" in keys(DataConfig)
    assert set(f"{common} {transformer}".split()) <= set(keys(BACKENDS["transformer"].settings))
    assert set(f"{common} {rnn} embedding".split()) <= set(keys(BACKENDS["rnn"].settings))


def test_every_setting_has_one_line_of_help() -> None:
    for settings in (DataConfig, TrainConfig, *(backend.settings for backend in BACKENDS.values())):
        for key in keys(settings).values():
            assert key.help and "\n" not in key.help, key.name
            assert describe(key.type)


def test_later_layers_win_and_all_win_over_the_size() -> None:
    width = BACKENDS["transformer"].sizes["tiny"]["width"]
    assert resolve(size="tiny").model.width == width == 128
    assert resolve(size="tiny", layers=[layer(model={"width": 64})]).model.width == 64
    both = [layer(model={"width": 64}, train={"warmup": 1}), parse_assignment("model.width=32")]
    config = resolve(size="tiny", layers=both)
    assert (config.model.width, config.train.warmup) == (32, 1)
    assert config.model.layers == 4  # the size's, where nothing else is said


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", ["tiny", "small", "base", "big"])
def test_every_size_of_every_backend_resolves(backend: str, size: str) -> None:
    config = resolve(backend, size)
    assert config.backend == backend
    for key, value in BACKENDS[backend].sizes[size].items():
        assert getattr(config.model, key) == value


def test_the_backend_is_a_key_too_and_the_option_wins() -> None:
    assert resolve().backend == "transformer"
    assert resolve(layers=[layer(model={"backend": "rnn"})]).backend == "rnn"
    assert resolve("transformer", layers=[layer(model={"backend": "rnn"})]).backend == "transformer"


def test_a_base_takes_the_place_of_the_defaults() -> None:
    base = resolve("rnn", "tiny", [layer(train={"warmup": 7, "max_steps": 10})])
    assert resolve(base=base) == base
    more = resolve(layers=[parse_assignment("train.max_steps=20")], base=base)
    assert more == dataclasses.replace(base, train=dataclasses.replace(base.train, max_steps=20))


@pytest.mark.parametrize("backend", BACKENDS)
def test_to_dict_and_back(backend: str) -> None:
    import json

    config = resolve(backend, "small", [layer(data={"bpe_dropout": 0.1}, train={"learning_rate": 1e-3, "max_steps": "none"})])
    stored = json.loads(json.dumps(config.to_dict()))
    assert stored["model"]["backend"] == backend
    assert Config.from_dict(stored) == config


WRONG = [
    ({"train": {"warmup": 1.5}}, "recipe.toml: train.warmup must be an integer, not 1.5"),
    ({"train": {"warmup": True}}, "train.warmup must be an integer, not true"),
    ({"train": {"warmup": "4000"}}, "train.warmup must be an integer, not '4000'"),
    ({"train": {"label_smoothing": "0.1"}}, "train.label_smoothing must be a number"),
    ({"train": {"label_smoothing": math.nan}}, "train.label_smoothing must be a number, not nan"),
    ({"train": {"schedule": "cosin"}}, "did you mean 'cosine'?"),
    ({"train": {"warmpu": 1}}, "recipe.toml: unknown key train.warmpu; did you mean 'warmup'?"),
    ({"model": {"tie_embeddings": 1}}, "model.tie_embeddings must be true or false, not 1"),
    ({"model": {"cell": "gru"}}, "model.cell belongs to the backend rnn, not to transformer"),
    ({"model": {"widht": 1}}, "did you mean 'width'?"),
    ({"model": {"backend": "rrn"}}, "did you mean 'rnn'?"),
    ({"train": {"label_smoothing": 1.0}}, "train.label_smoothing must be at least 0 and below 1, not 1"),
    ({"train": {"learning_rate": -1}}, "train.learning_rate must be at least 0, not -1"),
    ({"train": {"max_steps": 0}}, "train.max_steps must be at least 1, not 0"),
    ({"train": {"seed": -1}}, "train.seed must be at least 0"),
    ({"train": {"seed": 2**63}}, f"train.seed must be at least 0 and at most {2**63 - 1}, not {2**63}"),
    ({"train": {"max_steps": 10**400}}, "train.max_steps must be at least 1 and at most"),
    ({"train": {"keep_last": 10**30}}, "train.keep_last must be at least 1 and at most"),
    ({"train": {"warmup": 10**400}}, "train.warmup must be at least 0 and at most"),
    ({"train": {"batch_tokens": 10**30}}, "train.batch_tokens must be at least 1 and at most 2147483647"),
    ({"train": {"accumulate": 4097}}, "train.accumulate must be at least 1 and at most 4096, not 4097"),
    ({"train": {"valid_beam": 10**30}}, "train.valid_beam must be at least 1 and at most 1000"),
    ({"model": {"width": 10**30}}, "width must be at most 1,000,000"),
    ({"model": {"layers": 10**30}}, "layers must be at most 1,000,000"),
    ({"train": {"max_steps": "none", "schedule": "linear"}}, "train.max_steps, which must be given"),
    ({"train": {"max_steps": "none", "teacher_forcing_end": 0.5}}, "train.max_steps, which must be given"),
    ({"train": {"warmup": 0}}, "train.learning_rate must be given"),
    ({"train": {"optimizer": "adadelta"}}, "set train.schedule constant and train.warmup 0"),
    ({"train": {"optimizer": "adadelta", "schedule": "constant"}}, "set train.schedule constant and train.warmup 0"),
    ({"train": {"optimizer": "adadelta", "warmup": 0}}, "set train.schedule constant and train.warmup 0"),
    ({"train": {"optimizer": "adadleta"}}, "did you mean 'adadelta'?"),
    ({"train": {"adadelta_rho": 1.0}}, "train.adadelta_rho must be at least 0 and below 1, not 1"),
    ({"train": {"adadelta_epsilon": 0.0}}, "train.adadelta_epsilon must be above 0, not 0"),
    ({"train": {"r_drop": -1}}, "train.r_drop must be at least 0, not -1"),
    ({"train": {"r_drop": 5, "teacher_forcing": 0.9}}, "train.teacher_forcing must stay 1"),
    ({"train": {"r_drop": 5, "teacher_forcing_end": 0.9}}, "train.teacher_forcing must stay 1"),
    ({"train": {"average_last": 9}}, "needs train.keep_last"),
    ({"data": {"bpe_dropout": 1}}, "data.bpe_dropout must be at least 0 and below 1, not 1"),
    ({"model": {"width": 10, "heads": 3}}, "model: "),
]


@pytest.mark.parametrize(("tables", "message"), WRONG)
def test_what_is_wrong_is_refused_by_name(tables: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(layers=[layer(**tables)])
    assert message in str(refused.value)


def test_unknown_backend_and_size_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown size 'tinny'; did you mean 'tiny'"):
        resolve(size="tinny")
    with pytest.raises(UsageError, match="unknown backend 'lstm'"):
        resolve("lstm")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("train.learning_rate=1e-4", 1e-4),
        ("train.learning_rate = .5", 0.5),
        ("train.warmup=1_000", 1000),
        ("model.tie_embeddings=false", False),
        ("model.positions=none", "none"),
        ('model.positions="none"', "none"),
        ("train.metric=a=b", "a=b"),
        ("train.metric=", ""),
        ("train.metric=1\nfoo=2", "1\nfoo=2"),
    ],
)
def test_assignments_are_toml_or_a_bare_word(text: str, value: object) -> None:
    assigned = parse_assignment(text)
    ((_, ((_, found),)),) = ((table, list(items.items())) for table, items in assigned.tables.items())
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["warmup=3", "train.warmup", "train.=3", "=3", "trian.warmup=3", "translate.search=beam"])
def test_assignments_without_table_key_and_value_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--set {text}"):
        parse_assignment(text)


def test_yaml_traps_are_none_here(tmp_path: Path) -> None:
    """`1e-4` is a string and `no` is False in YAML 1.1 (LlamaFactory 4014)."""
    read = read_toml(written(tmp_path, '[train]\nlearning_rate = 1e-4\n[preprocess]\nsource_lang = "no"\n'))
    assert resolve(layers=[read]).train.learning_rate == 1e-4
    assert read.tables["preprocess"]["source_lang"] == "no"


def test_a_files_errors_name_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "[recipe]\nanything = 1\n\n[train]\nwarmup = 3\nmax_step = 4\n")
    with pytest.raises(UsageError, match=rf"{path}:6: unknown key train.max_step; did you mean 'max_steps'\?"):
        resolve(layers=[read_toml(path)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tarin]\n", "unknown table or key 'tarin'; did you mean 'train'"),
        ("warmup = 3\n", "unknown table or key 'warmup'"),
        ("train = 3\n", r"\[train\]"),
    ],
)
def test_a_file_holds_known_tables_only(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_toml(written(tmp_path, text))


def test_a_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("[train]\n# für später\n".encode("latin-1"))
    with pytest.raises(NmtError, match=rf"^{path}, line 2: is not valid UTF-8, which TOML must be; convert the file$"):
        read_toml(str(path))


def test_an_integer_of_thousands_of_digits_is_no_crash(tmp_path: Path) -> None:
    digits = "1" * 5000
    with pytest.raises(NmtError, match="not valid TOML"):
        read_toml(written(tmp_path, f"[train]\nwarmup = {digits}\n"))
    with pytest.raises(UsageError, match=r"train\.warmup must be an integer"):
        resolve(layers=[parse_assignment(f"train.warmup={digits}")])


def test_malformed_toml_is_no_usage_error(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"recipe.toml: not valid TOML: .*line 2") as refused:
        read_toml(written(tmp_path, "[train]\nwarmup = = 3\n"))
    assert not isinstance(refused.value, UsageError)
    with pytest.raises(NmtError, match="no such file"):
        read_toml(str(tmp_path / "missing.toml"))


@example(2**53 + 1)
@example(10**400)
@given(st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.none(), st.lists(st.integers())))
def test_types_are_strict(value: Any) -> None:
    """`convert` takes a value exactly where Python's own type says so, but for whole numbers as floats."""
    finite = math.isfinite(value) if isinstance(value, float) else type(value) is int and abs(value) < 2**1024
    expected = {
        bool: isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: finite,
        str: isinstance(value, str),
        int | None: (isinstance(value, int) and not isinstance(value, bool)) or value in (None, "none"),
        Literal["a", "b"]: value in ("a", "b"),
        list[int]: isinstance(value, list),
    }
    for kind, accepted in expected.items():
        try:
            found = convert(value, kind, "table.key", "here")
        except UsageError as error:
            assert not accepted and "here: table.key must be" in str(error)
        else:
            assert accepted
            right = float(value) if kind is float else value
            assert found == (None if value == "none" and kind is not str else right)


def test_did_you_mean_is_silent_where_nothing_is_near() -> None:
    assert did_you_mean("zzz", ["warmup"]) == ""


def test_a_recurrent_network_needs_word_vectors() -> None:
    with pytest.raises(UsageError, match="embedding must be at least 1, not 0"):
        resolve("rnn", layers=[layer(model={"embedding": 0})])

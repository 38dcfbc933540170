"""What a job may say of somebody's model, and what its genesis is the same of."""

import pytest
from pydantic import ValidationError

from daa_node.errors import UserError
from daa_node.training.config import TrainingJob
from daa_node.training.model_config import PARAMETERS_MAX, ModelConfig
from daa_node.training.module_config import check_allowed
from daa_node.updates.grid import GRID_MAX, GRID_ONE

PATH = "a_package.model:build"
DIGEST = "ab" * 32


def module(**fields: object) -> ModelConfig:
    return ModelConfig.model_validate({"kind": "module", "path": PATH, **fields})


def built(*tensors: dict[str, object]) -> ModelConfig:
    return module(built={"source_digest": DIGEST, "tensors": tensors})


def test_a_built_in_model_says_nothing_of_modules_and_a_module_nothing_of_them() -> None:
    of_all = {"kind", "context", "vocabulary", "picture_side", "picture_channels", "classes"}
    assert set(ModelConfig().model_dump()) == of_all | {"depth", "width", "heads"}
    of_module = built({"name": "w", "shape": [2, 3]})
    assert set(of_module.model_dump()) == of_all | {"path", "arguments", "built"}
    job = TrainingJob(model=of_module)
    assert TrainingJob.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"path": None}, "needs a path like"),
        ({"path": "no_function"}, "should match pattern"),
        ({"path": "../x:build"}, "should match pattern"),
        ({"depth": 3}, "takes no depth; give it in arguments"),
        ({"kind": "mlp"}, "a model of kind mlp takes no path"),
        ({"arguments": {"a": float("nan")}}, "arguments.a: nan is no finite number"),
        ({"arguments": {"a": [1, 2**63]}}, "arguments.a.1: 9223372036854775808 has more"),
        ({"arguments": {"a": "0.5"}}, "arguments.a: '0.5' is a number in quotes"),
        ({"arguments": {"a": "\ud800"}}, r"arguments.a: '\\ud800' is no text that UTF-8 can hold"),
        ({"path": "a." * 200 + "b:build"}, "at most 256 characters"),
        ({"arguments": {"a": "x" * 70_000}}, "these are settings, not data"),
    ],
)
def test_a_wrong_module_is_refused_with_what_is_wrong(fields: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        module(**fields)


def test_sections_come_in_one_order_since_the_chain_id_tells_of_none() -> None:
    written = module(arguments={"b": [{"y": 1, "x": 2}], "a": {"d": 1, "c": {"f": 0, "e": 0}}})
    assert (
        written.model_dump_json()
        == (
            module(arguments={"a": {"c": {"e": 0, "f": 0}, "d": 1}, "b": [{"x": 2, "y": 1}]})
        ).model_dump_json()
    )


def test_arguments_that_lie_in_each_other_too_deeply_are_refused() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValidationError, match="more than 16 sections"):
        module(arguments={"a": deep})


def test_its_tensors_are_those_of_the_genesis_in_that_order() -> None:
    model = built(
        {"name": "z", "shape": [2, 3], "std": 7, "fill": -1}, {"name": "a", "shape": [], "fill": 5}
    )
    assert [(spec.name, spec.shape) for spec in model.tensors()] == [("z", (2, 3)), ("a", ())]
    assert [(init.std, init.fill) for init in model.inits()] == [(7, -1), (0, 5)]
    assert (model.parameter_count(), model.is_known, model.is_canonical) == (7, True, False)
    assert not module().is_known


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        ([], "at least 1 item"),
        ([{"name": "a", "shape": [1]}, {"name": "a", "shape": [2]}], "two tensors have one name"),
        ([{"name": "a", "shape": [0]}], "greater than or equal to 1"),
        ([{"name": "a b", "shape": [1]}], "should match pattern"),
        ([{"name": "a", "shape": [1], "std": 3 * GRID_ONE}], "less than or equal to"),
        ([{"name": "a", "shape": [1], "std": 9, "fill": GRID_MAX}], "beyond the range"),
        ([{"name": "a", "shape": [PARAMETERS_MAX, 2]}], "parameters, at most"),
    ],
)
def test_tensors_that_no_network_can_have_are_refused(
    tensors: list[dict[str, object]], what: str
) -> None:
    with pytest.raises(ValidationError, match=what):
        built(*tensors)


def test_a_package_is_allowed_with_all_below_it_and_nothing_beside_it() -> None:
    for allowed in ("a_package", "a_package.model"):
        check_allowed(PATH, ("other", allowed))
    for denied in ((), ("a_pack",), ("a_package.other",), ("a_package.model.build",)):
        with pytest.raises(UserError, match=r"trainer.allow_modules: \[a_package\]"):
            check_allowed(PATH, denied)

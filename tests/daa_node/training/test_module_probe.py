"""What a genesis learns of somebody's module, and which modules no network could train."""

from pathlib import Path

import numpy as np
import pytest

from daa_node.errors import UserError
from daa_node.tensors import slots_of
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.module_probe import probe
from daa_node.updates.grid import to_float32
from tests.daa_node.training.own_modules import access, job_of, pictures, write_package
from tests.daa_node.training.probed_modules import probed


def test_tensors_come_in_the_modules_order_and_start_as_it_starts_them(tmp_path: Path) -> None:
    write_package(tmp_path)
    job = probed(job_of("shakespeare", width=32), tmp_path)
    specs = job.model.tensors()
    assert [(spec.name, spec.shape) for spec in specs] == [
        ("embedding.weight", (256, 32)),
        ("norm.weight", (32,)),
        ("norm.bias", (32,)),
        ("rnn.weight_ih_l0", (96, 32)),
        ("rnn.weight_hh_l0", (96, 32)),
        ("rnn.bias_ih_l0", (96,)),
        ("rnn.bias_hh_l0", (96,)),
        ("head.weight", (256, 32)),
    ]
    weights_D = to_float32(genesis_weights(job.model, job.seed))
    first = {slot.spec.name: weights_D[slot.start : slot.stop] for slot in slots_of(specs)}
    assert (first["norm.weight"] == 1).all()
    assert (first["norm.bias"] == 0).all()
    assert first["embedding.weight"].std() == pytest.approx(1.0, rel=0.05)
    # torch draws these evenly from -1/sqrt(32) to 1/sqrt(32)
    assert first["head.weight"].std() == pytest.approx(1 / np.sqrt(3 * 32), rel=0.05)
    assert abs(first["head.weight"].mean()) < 0.01


def test_one_weight_that_is_used_twice_is_one_tensor(tmp_path: Path) -> None:
    tied = "def extra(self):\n    self.again = self.layer\n"
    write_package(tmp_path, pictures(tied))
    names = [spec.name for spec in probed(job_of(), tmp_path).model.tensors()]
    assert names == ["layer.weight", "layer.bias", "head.weight", "head.bias"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ("def forward(self, inputs, targets):\n    return inputs", "returned shape .2, 64., not a"),
        ("def forward(self, inputs):\n    return inputs.sum()", "inputs and targets are .2, 64."),
        ("def forward(self, inputs, targets):\n    return 1 / 0", "ZeroDivisionError"),
        ("def hidden(self, x):\n    return self.layer(x).log()", "loss, or gradient, is no number"),
        (
            "def hidden(self, x):\n    return F.dropout(self.layer(x).relu(), 0.5)",
            "leave out what draws by chance",
        ),
        (
            "def extra(self):\n    self.register_buffer('mask', torch.rand(8))",
            "mask comes out otherwise each time",
        ),
        (
            "def extra(self):\n    self.layer.weight.requires_grad_(False)",
            "layer.weight comes out otherwise each time",
        ),
        (
            "def extra(self):\n    self.norm = nn.BatchNorm1d(8)\n\n"
            "def hidden(self, x):\n    return self.norm(self.layer(x))",
            "a step changes norm.running_mean",
        ),
        (
            "def extra(self):\n    self.register_parameter('a b', nn.Parameter(torch.ones(1)))",
            "no genesis can name its tensors: .*'a b'",
        ),
        ("def extra(self):\n    self.double()", "layer.weight is torch.float64, not float32"),
        ("def extra(self):\n    self.lazy = nn.LazyLinear(4)", "lazy.weight has no numbers yet"),
        ("def extra(self):\n    self.to('meta')", "layer.weight has no numbers yet"),
        ("def extra(self):\n    self.requires_grad_(False)", "has no trainable parameter"),
        ("def extra(self):\n    nn.init.normal_(self.layer.weight, 0, 5)", "a deviation of 4|5"),
    ],
)
def test_what_no_network_can_train_is_refused(tmp_path: Path, changes: str, what: str) -> None:
    write_package(tmp_path, pictures(changes))
    with pytest.raises(UserError, match=what):
        probe(job_of(), access(tmp_path), is_checked=True)


def test_where_nobody_checks_chance_is_allowed(tmp_path: Path) -> None:
    dropout = "def hidden(self, x):\n    return F.dropout(self.layer(x).relu(), 0.5)"
    write_package(tmp_path, pictures(dropout))
    assert len(probe(job_of(), access(tmp_path), is_checked=False).tensors) == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def build():\n    return 7\n", "returned a int, not a torch.nn.Module"),
        ("def build():\n    raise KeyError('x')\n", "cannot be built: KeyError: 'x'"),
        ("def build(depth):\n    pass\n", "missing 1 required positional argument: 'depth'"),
        ("import not_there\n", "No module named 'not_there'"),
    ],
)
def test_a_function_that_builds_no_module_is_told(tmp_path: Path, text: str, what: str) -> None:
    write_package(tmp_path, text)
    with pytest.raises(UserError, match=what):
        probe(job_of(), access(tmp_path), is_checked=True)

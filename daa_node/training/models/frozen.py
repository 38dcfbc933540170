"""A frozen base in its own dtype, bf16 or fp16, mapped from its file and computed in float32.

    before a module's forward   its frozen halves become float32
    after it                    they are halves again, as they lie in the file
    on the way back             what autograd needs of such a copy is made again

So a base takes two bytes a parameter of memory that the kernel may drop, and of the rest no more
than what one module computes with. Each half is a float32, so every result has the bits of a base
that was float32 as a whole: whoever checks a step comes to them too.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

HALVES = (torch.bfloat16, torch.float16)


def compute_in_float32(module: nn.Module, run: Callable[[], object]) -> None:
    """Have each part of it that owns halves see them as float32 while it runs.

    `run` is a forward, to try it: some models compute with what a part owns without running that
    part, or round what they give it to its dtype, and see halves then. Such a base is float32 for
    good, which has the same bits.
    """
    owned = {p.untyped_storage().data_ptr() for p in module.parameters() if p.dtype in HALVES}
    for owner in module.modules():
        if any(p.dtype in HALVES for p in owner.parameters(recurse=False)):
            widening = _Widening(owner)
            owner.register_forward_pre_hook(widening.before)
            # also where forward raises: it would be run with what is wide, and be it for good
            owner.register_forward_hook(widening.after, always_call=True)
    try:
        with torch.no_grad(), _NoHalves(owned):
            run()
    except RuntimeError:  # two dtypes in one product, or a half that is not the base's own
        make_float32(module.parameters())


def make_float32(parameters: Iterable[nn.Parameter]) -> None:
    """For good, in memory: what is trained, and what several devices share."""
    for parameter in parameters:
        if parameter.dtype in HALVES:
            parameter.data = parameter.data.float()


class _NoHalves(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Nothing is rounded to a half: each there is lies where the base does."""

    def __init__(self, owned: Collection[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owned = owned

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Raises RuntimeError for an operation that makes one."""
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if not isinstance(one, Tensor) or one.dtype not in HALVES:
                continue
            if one.untyped_storage().data_ptr() not in self._owned:
                raise RuntimeError(f"{func} makes {one.dtype}")
        return made


@dataclass(frozen=True, slots=True)
class _Again:
    """What autograd is given in place of a part of a float32 copy."""

    half: nn.Parameter
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        return self.half.detach().float().as_strided(self.size, self.stride, self.offset)


class _Widening:
    """Of the parameters of one module, while its forward runs."""

    def __init__(self, owner: nn.Module) -> None:
        self._owner = owner
        self._halves: dict[str, nn.Parameter] = {}
        self._places: dict[int, nn.Parameter] = {}  # by where the copy lies
        self._hooks: saved_tensors_hooks | None = None

    def before(self, _module: nn.Module, _inputs: Any) -> None:
        """A pre-hook."""
        for name, half in self._owner.named_parameters(recurse=False, remove_duplicate=False):
            if half.dtype in HALVES:
                wide = nn.Parameter(half.detach().float(), requires_grad=False)
                self._owner.register_parameter(name, wide)
                self._halves[name] = half
                self._places[wide.untyped_storage().data_ptr()] = half
        if self._halves:
            self._hooks = saved_tensors_hooks(self._pack, _unpack)
            self._hooks.__enter__()

    def after(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        """A hook, which changes no output."""
        if self._hooks is None:
            return
        self._hooks.__exit__(None, None, None)
        for name, half in self._halves.items():
            self._owner.register_parameter(name, half)
        self._halves, self._places, self._hooks = {}, {}, None

    def _pack(self, saved: Tensor) -> Tensor | _Again:
        half = self._places.get(saved.untyped_storage().data_ptr())
        if half is None:
            return saved
        return _Again(half, saved.size(), saved.stride(), int(saved.storage_offset()))


def _unpack(packed: Tensor | _Again) -> Tensor:
    return packed.tensor() if isinstance(packed, _Again) else packed

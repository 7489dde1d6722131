"""Where a graph is cut, and what is said about the pieces; without a box, for these models are ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from swarm.extract.child import candidates, ops, work
from swarm.extract.child.draws import Drawn, Unfit, rules
from swarm.extract.child.family import families, label, op_class
from swarm.extract.child.graph import Call, trace
from swarm.extract.child.regions import Cut, cut
from tests.extract import zoo


def cuts(module: nn.Module, *args: Any) -> list[Cut]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        traced, left = trace(Call("", module, args, {}))
    assert left == []
    return cut(traced[0])


def words(found: Cut) -> list[str]:
    return [ops.name(node) for node in found.region.nodes if ops.name(node) != "getitem"]


def forward(found: Cut) -> candidates.Candidate:
    kept = candidates.Keeper(found.traced, {*found.inputs, *found.outputs}).keep()
    return candidates.forward(found, kept)


class Function(nn.Module):
    """A module without parameters, of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def test_an_anchor_takes_in_what_follows_element_by_element() -> None:
    first, second = cuts(zoo.Residual().eval(), torch.randn(1, 16, 6, 6))
    assert words(first) == ["conv2d", ops.BATCH_NORM, "relu"]
    assert words(second) == ["conv2d", ops.BATCH_NORM, "add", "relu"]
    assert first.outputs[0] in second.inputs


def test_a_norm_is_a_region_of_its_own_and_views_go_with_their_readers() -> None:
    found = cuts(zoo.LlamaLayer().eval(), torch.randn(1, 8, 64), torch.randn(8, 16), torch.randn(8, 16))
    assert [label(one) for one in found] == [
        "RMSNorm", "linear_rope", "linear_rope", "linear", "attention", "linear_add",
        "RMSNorm", "linear_silu", "linear", "linear_add",
    ]  # fmt: skip
    value = found[3]
    assert words(value) == ["linear"]
    assert tuple(ops.value(value.outputs[0]).shape) == (1, 8, 32), "as it lies in memory"


def test_attention_that_is_spelt_out_is_one_region() -> None:
    q, k, v = torch.randn(3, 1, 2, zoo.TOKENS, 16)
    (found,) = cuts(zoo.SpeltOut(), q, k, v)
    assert op_class(found) == "attention"
    made = forward(found)
    assert made.names == ["q", "k", "v"]
    masked = '(matmul * 0.25).masked_fill(~mask, value=float("-inf")).softmax(dim=-1)'
    assert made.source.endswith(f"    softmax = {masked}\n    return softmax @ v\n")
    assert rules(made.run, made.inputs, False, 0).is_wider, "finite, whatever the inputs"
    assert "mask = torch.ones([32, 32], dtype=torch.bool, device=q.device).tril()" in made.source


def test_a_region_never_waits_for_itself() -> None:
    """The sum could join the first product, were the norm between them not in another module."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x)
            return x * self.b(self.norm(x))

    found = cuts(Around(), torch.randn(2, 8))
    assert [words(one) for one in found] == [["linear"], ["layer_norm"], ["linear", "mul"]]
    assert all(forward(one).source for one in found)


def test_what_no_problem_can_be_made_of_is_named() -> None:
    with torch.no_grad():
        found = cuts(zoo.Strange().train(), torch.randn(1, zoo.HIDDEN, zoo.HIDDEN))
    reasons = " | ".join(one.region.fault for one in found if one.region.fault)
    for reason in (
        "random numbers (", "a shape that depends on values (", "elements of type complex64 (",
        "batch normalisation in training mode",
    ):  # fmt: skip
        assert reason in reasons


def test_work_is_what_must_be_done() -> None:
    q = torch.randn(2, 3, 8, 16)
    (causal,) = cuts(Function(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)), q)
    assert work.forward_flops(causal) == 2 * (2 * 3) * (8 * 9 // 2) * (16 + 16)
    assert work.is_irregular(causal)
    table, at = torch.randn(1000, 16), torch.randint(0, 1000, (5,))
    (gathered,) = cuts(Function(lambda table, at: F.embedding(at, table)), table, at)
    assert work.forward_bytes(gathered) == 5 * 16 * 4 + 5 * 8 + 5 * 16 * 4
    (plain,) = cuts(nn.Linear(8, 4), torch.randn(2, 8))
    assert (work.forward_flops(plain), work.backward_flops(plain)) == (2 * 2 * 8 * 4, 2 * 2 * 2 * 8 * 4)
    assert work.forward_bytes(plain) is None


def test_a_gradient_that_is_passed_on_is_no_work() -> None:
    class Add(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + y

    (found,) = cuts(Add(), torch.randn(2, 8), torch.randn(2, 8))
    gradient = candidates.backward(forward(found))
    assert gradient.names == ["grad_output", "x", "weight"], "neither bias nor residual need be read"
    assert gradient.outputs == ["grad_x", "grad_weight", "grad_bias"]
    passed = cuts(Function(lambda x, y: x + y), torch.randn(2, 8), torch.randn(2, 8))[0]
    with pytest.raises(Unfit, match="the one that comes in"):
        candidates.backward(forward(passed))


def test_equal_texts_are_one_family() -> None:
    found = [forward(one) for one in cuts(zoo.MoE().eval(), torch.randn(1, 4, zoo.HIDDEN))]
    sizes = {label(family.first.cut): len(family.members) for family in families(found)}
    assert sizes["linear_silu"] == 4, "of four experts"
    assert sizes["linear_softmax_topk"] == 1


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (torch.ones(9), "uniform(0.5, 1.5)"),
        (torch.zeros(9), "normal(0, 0.5)"),
        (torch.tensor([-1.0, 1.0]), "normal(0, 1)"),
        (torch.tensor([0.0, 0.5, 4.0]), "uniform(0, 4)"),
        (torch.tensor([3, 7, 5]), "int(3, 8)"),
        (torch.tensor([True, False]), "bernoulli(0.5)"),
    ],
)
def test_inputs_are_drawn_like_those_in_the_model(seen: torch.Tensor, text: str) -> None:
    assert Drawn.like(seen, may_scale=True).text == text


def test_an_honest_answer_in_sixteen_bits_keeps_to_the_tolerance() -> None:
    x, weight = torch.randn(32, 512).bfloat16(), torch.randn(64, 512).bfloat16()
    found = rules(F.linear, [x, weight], False, 0)
    assert found.is_wider
    error = (F.linear(x, weight).double() - F.linear(x.double(), weight.double())).abs()
    right = F.linear(x.double(), weight.double()).abs()
    assert float((error < found.atol + found.rtol * right).double().mean()) >= found.ratio


def test_where_rounding_decides_the_reference_is_right_as_it_is() -> None:
    """The cosine of a large angle in 16 bits is any number; no tolerance tells that from a guess."""
    angles = torch.linspace(100, 900, 512).bfloat16()
    found = rules(lambda x: (x * 1.01).cos(), [angles], False, 0)
    assert not found.is_wider
    assert found.rtol == 0.01


def test_what_is_not_finite_for_random_inputs_is_no_problem() -> None:
    with pytest.raises(Unfit, match="not finite"):
        rules(lambda x: x.sqrt(), [torch.tensor([-1.0, 1.0])], False, 0)
    with pytest.raises(Unfit, match="holds infinities"):
        rules(torch.exp, [torch.tensor([0.0, float("-inf")])], False, 0)

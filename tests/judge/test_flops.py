import pytest
import torch

from swarm.judge.flops import Spec, count_flops

MATRIX: Spec = ([8, 16], "float32", None)


def test_a_matrix_product_counts_two_per_multiply_add() -> None:
    assert count_flops(lambda x, y: x @ y, [MATRIX, ([16, 4], "float32", None)]) == {
        "aten.mm": 2 * 8 * 16 * 4
    }


def test_each_operation_is_counted_by_its_name() -> None:
    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.bmm((x @ w)[None], (x @ w).T[None]) + (x @ x.T)

    counted = count_flops(layers, [MATRIX, ([16, 4], "float32", None)])
    assert counted == {"aten.mm": 2 * 2 * 8 * 16 * 4 + 2 * 8 * 16 * 8, "aten.bmm": 2 * 8 * 4 * 8}


def test_products_with_a_vector_count_like_those_of_matrices() -> None:
    vector: Spec = ([16], "float32", None)
    assert count_flops(lambda x, v: x @ v, [MATRIX, vector]) == {"aten.mv": 2 * 8 * 16}
    assert count_flops(lambda v, w: v @ w, [vector, vector]) == {"aten.dot": 2 * 16}
    added = count_flops(lambda x, v, b: b.addmv(x, v), [MATRIX, vector, ([8], "float32", None)])
    assert added == {"aten.addmv": 2 * 8 * 16}


def test_element_wise_work_counts_nothing() -> None:
    assert count_flops(lambda x: torch.nn.functional.silu(x) * 2, [MATRIX]) == {}


def test_scalars_are_passed_as_they_are() -> None:
    assert count_flops(lambda x, n: x[:n] @ x.T, [MATRIX, (None, "int64", 2)]) == {"aten.mm": 2 * 2 * 16 * 8}


def test_nothing_is_computed_whatever_the_size() -> None:
    huge: Spec = ([1_000_000, 1_000_000], "bfloat16", None)
    assert count_flops(lambda x: x @ x, [huge]) == {"aten.mm": 2 * 10**18}


def test_what_comes_before_values_are_needed_is_counted() -> None:
    def routed(x: torch.Tensor) -> torch.Tensor:
        y = x @ x.T
        return y[torch.nonzero(y > 0)[:, 0]] @ y if bool(y.sum() > 0) else y

    assert count_flops(routed, [MATRIX]) == {"aten.mm": 2 * 8 * 16 * 8}


def test_an_error_of_the_reference_is_not_hidden() -> None:
    with pytest.raises(RuntimeError):
        count_flops(lambda x: x @ x, [MATRIX])

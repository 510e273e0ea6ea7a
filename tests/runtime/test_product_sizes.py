"""An input whose only dimension is a product of sizes comes before the inputs that tell them."""

import numpy as np
import pytest

import luminal
from luminal.errors import InputError


def ones(*shape):
    return np.ones(shape, np.float32)


def test_sizes_change_although_a_product_of_them_comes_first():
    graph = luminal.Graph()
    a, b = graph.dim("a", 1, 100), graph.dim("b", 1, 100)
    parts = [graph.tensor((a * b, 4)), graph.tensor((a, 3)), graph.tensor((b, 3))]
    (parts[0].sum() + parts[1].sum() + parts[2].sum()).output()
    rt = graph.compile(threads=1)
    for m, n in ((2, 3), (4, 5), (1, 2)):
        assert rt(ones(m * n, 4), ones(m, 3), ones(n, 3)) == m * n * 4 + m * 3 + n * 3
    with pytest.raises(InputError, match=r"\(a\*b, 4\)"):
        rt(ones(7, 4), ones(2, 3), ones(3, 3))

"""All cases: importing a table adds its cases to the list."""

from . import (  # noqa: F401
    table_elementwise,
    table_images,
    table_layers,
    table_more,
    table_products,
    table_reduction,
    table_shape,
)
from .cases import CASES, Case, run_case

__all__ = ["CASES", "Case", "run_case"]

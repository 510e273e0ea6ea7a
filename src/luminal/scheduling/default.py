"""The schedule of a kernel without any search: computed from structure, sizes and target facts.

1. The dominant reduction and its register tile are solved (`outline`, `solver`).
2. Operands that are costly or badly laid out, and read often, become values (`operands`).
3. A frame gives the outer loops: tile, joint, row or stream (`frames`, `frames_rows`); streams may
   multiply matrices (`frames_tiles`).
4. Each value gets the loops of its tile inside them (`paths`), each constant its panels (`panels`).
5. What is kept between passes gets a home, or is computed again (`keep`).

No operation is named anywhere in these.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ..kernel.kernel import Kernel
from ..kernel.narrow import half_weights, rounded_behind, whole_weights
from ..kernel.schedule import Layout, Schedule
from ..kernel.target import Target
from ..lowering.library import call, libraries
from .decisions import Decisions
from .divide import stores_apart
from .draft import Draft
from .frames import tile_frame
from .frames_joint import in_turn, joint_frame, sum_of_sums
from .frames_matrices import matrices
from .frames_rows import row_frame, stream_frame
from .frames_tiles import stream_tiles
from .keep import keep_values
from .operands import add_operands, in_memory
from .outline import Outline, again, outline, side_by_side
from .panels import panels
from .tile import Tile

_drawn = deque[tuple[Kernel, Target, Draft]](maxlen=16)  # a kernel's parts, and what they replace


def default_schedule(
    kernel: Kernel, target: Target, decisions: Decisions | None = None
) -> tuple[Kernel, Schedule]:
    """A good legal schedule for a prepared kernel, and the kernel that it belongs to: with
    operand values added, cheap values written into their readers, tiles' axes in memory order.

    `decisions`: choices that differ from the default's own; afterwards, all that were made. Raises
    Illegal where they do not go together.

    Run-time sizes are taken at `kernel.hints`, else at `target.hint`; it is legal for all sizes.
    """
    decisions = decisions or Decisions()
    library = decisions.of("library", "", libraries(kernel, target.libraries))
    if library:
        return kernel, call(str(library))
    draft = drafted(kernel, target, decisions) if decisions.chosen else drawn(kernel, target)
    made, schedule = draft.finish()
    decisions.made |= draft.facts.decisions.made
    return replace(made, name=kernel.name), schedule


def drawn(kernel: Kernel, target: Target) -> Draft:
    """As `drafted` without choices. It is remembered for a while: who compares several kernels with
    one by their drafts has one of them scheduled next."""
    kernel = replace(kernel, name="")
    for known, machine, draft in tuple(_drawn):
        if known == kernel and machine == target:
            return draft
    draft = drafted(kernel, target)
    _drawn.append((kernel, target, draft))
    return draft


def drafted(kernel: Kernel, target: Target, decisions: Decisions | None = None) -> Draft:
    """The default schedule as it was drawn up: with the tiles that were chosen for it."""
    found = outline(kernel, target, decisions)
    narrow = {i.first for i in target.instructions if i.registers}
    some = target.rounds or any(b.dtype in narrow for b in kernel.buffers)
    if some and found.streams and not _in_matrices(found):
        free = target.rounds or rounded_behind(kernel)
        half = half_weights(kernel, target.instructions) if free else kernel
        other = outline(half, target, decisions)
        if not _in_matrices(other):
            other = outline(half, target, decisions, rows=True)
        better = target.rounds and (other.lane == found.lane or other.cost <= found.cost)
        found = other if _in_matrices(other) or better else found
    elif target.rounds and not (found.tile and found.tile.rows):
        whole = outline(whole_weights(kernel), target, decisions)
        pairs = found.tile and found.tile.pair and found.cost <= whole.cost
        found = found if pairs else whole
    made, operands = add_operands(found)
    tile = found.tile
    if tile is not None and (tile.matrices or turned(found, tile)):
        made = stores_apart(made, lambda v: bool(v.reduction) and not v.scans)
        found = again(found, made, operands)
        if tile.matrices and not in_memory(found):
            found = outline(kernel, target, decisions, matrices=False)
            made, operands = add_operands(found)
    if operands:
        found = again(found, made, operands)
    if not found.streams and sum_of_sums(found):
        found = again(found, in_turn(found), operands)
    elif (together := side_by_side(found)) != found.kernel:
        found = again(found, together, operands)
    draft = Draft(found, operands)
    _choose(draft)
    keep_values(draft)
    constants = panels(draft.found, draft.tiles, draft.paths)
    rows: dict[str, Layout] = {name: () for name, layout in constants.items() if not layout}
    if rows:  # values want them otherwise: they are walked as they lie
        buffers = (replace(b, layout=rows.get(b.name, b.layout)) for b in kernel.buffers)
        return drafted(replace(kernel, buffers=tuple(buffers)), target, decisions)
    draft.layouts = {**constants, **draft.layouts}
    return draft


def _in_matrices(found: Outline) -> bool:
    """All products of its stream are of matrices."""
    return matrices(found) is not None or bool(stream_tiles(found))


def turned(found: Outline, tile: Tile) -> bool:
    """Lanes of a sum are stored one by one, and vectors would lie along another axis: out of memory
    whole blocks are turned, in registers."""
    stride, lane = found.facts.store_stride, tile.lane
    sums = [v for v in found.group if v.store and lane in v.axes and stride(v, lane) > 1]
    wide = (stride(v, a) == 1 and found.size[a] >= tile.width for v in sums for a in v.axes)
    return found.target.group == 1 and any(wide)


def _choose(draft: Draft) -> None:
    """Fill the draft by the frame that fits."""
    found = draft.found
    scans = any(v.scans for v in found.values)
    if found.streams:
        stream_frame(draft)
    elif scans or found.tile is None or not found.tile.lane:
        row_frame(draft)
    elif sum_of_sums(found):
        joint_frame(draft)
    elif found.tile.reduced and len(found.tile.sizes) == 1:
        row_frame(draft)
    else:
        tile_frame(draft)

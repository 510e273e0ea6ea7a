"""A plan as kernels: where every stored value lives, and one step for each kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import TypeAlias

from ..graph.index import names_of
from ..kernel.domains import ended_by_memory, ended_by_readers
from ..kernel.kernel import Buffer, Kernel, Value
from .kernel_body import Body, BufferView, load_from, plain_store, scatter_value
from .parts import written_in_parts
from .plan import FusedKernel, Plan
from .terms import Terms, is_reduction


@dataclass(frozen=True)
class Ref:
    """A buffer of a region. kind: "input" (leaf number), "output" (root number), "temporary"."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


@dataclass(frozen=True)
class Step:
    """A kernel and what its buffers are.

    constant: depends on constants only; runs once when they are set. copies: fills the buffer that
    the scatter behind it writes into with the scatter's base; needless where both are one buffer.
    root: the first class that its piece of the plan stores.
    """

    kernel: Kernel
    arguments: Mapping[str, Ref]
    constant: bool
    copies: bool = False
    root: int = -1


def lower_plan(plan: Plan) -> list[Step]:
    """The steps of a plan, in order. Kernels keep the axis names of the region."""
    return written_in_parts(_Lowering(plan).steps())


class _Lowering:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.classes = plan, plan.classes
        self.encoding = plan.classes.encoding
        self.space = self.encoding.space
        self.shared = self._shared_memory()
        self.orders = memory_orders(plan)
        self.constant = self._constant_memory()
        self.refs: dict[int, Ref] = {}
        self.temporaries = 0
        leaves = (t.attribute for t in self.classes.region.terms.nodes if t.op == "input")
        # by buffer: its axes, and what its elements are where a condition fails
        self.left = {str(Ref("input", x.number)): (x.axes, dict(x.outside)) for x in leaves}
        self.extra_roots: list[int] = []
        self._place_roots()

    # ---- memory

    def _shared_memory(self) -> dict[int, int]:
        """Base of a scatter -> the scatter, where nobody else needs the base as it was."""
        readers = Counter(read for piece in self.plan.pieces for read in piece.reads)
        found = {}
        for piece in self.plan.pieces:
            if piece.scatter is None:
                continue
            (base,) = piece.scatter.memory
            made_here = not self.classes.is_input(base)
            again = self._read_again(piece, base)
            alone = readers[base] == 1 and base not in self.classes.roots and not again
            same = self.classes.axes[base] == self.classes.axes[piece.roots[0]]
            plain = all(base != c for c, _ in piece.body)
            if made_here and alone and same and plain and not self.classes.constant[base]:
                found[base] = piece.roots[0]
        return found

    def _constant_memory(self) -> set[int]:
        """What kernels that run once make: constants made of constants only."""
        found: set[int] = set()
        for piece in self.plan.pieces:
            given = all(self.classes.is_constant_input(r) or r in found for r in piece.reads)
            if given and self.classes.constant[piece.roots[0]]:
                found.update(piece.roots)
        return found

    def _place_roots(self) -> None:
        """Others read or copy an output only if it has no axes beyond those of its value: along
        such axes it may have no elements. Nor can a scatter write along them."""
        taken = {piece.roots[0] for piece in self.plan.pieces if piece.scatter is not None}
        taken |= {self._final(read) for piece in self.plan.pieces for read in piece.reads}
        wanted: dict[int, list[int]] = {}
        for number, root in enumerate(self.classes.roots):
            wanted.setdefault(self._final(root), []).append(number)
        for memory, numbers in wanted.items():
            alone = len(numbers) == 1 and memory not in taken
            plain = [n for n in numbers if alone or self._is_plain(n)]
            if plain and not self.classes.is_input(memory):
                self.refs[memory] = Ref("output", plain[0])
                numbers.remove(plain[0])
            self.extra_roots += numbers
        self.extra_roots.sort()

    def _is_plain(self, number: int) -> bool:
        axes = self.classes.region.roots[number].axes
        return self.encoding.mask(axes) == self.classes.axes[self.classes.roots[number]]

    def _final(self, memory: int) -> int:
        while memory in self.shared:
            memory = self.shared[memory]
        return memory

    def ref(self, memory: int) -> Ref:
        """Where a class lives."""
        memory = self._final(memory)
        if self.classes.is_input(memory):
            return Ref("input", self.classes.leaf(memory).number)
        if memory not in self.refs:
            self.refs[memory] = Ref("temporary", self.temporaries)
            self.temporaries += 1
        return self.refs[memory]

    def place(self, memory: int) -> BufferView:
        """The buffer of a class as kernels see it."""
        final = self._final(memory)
        ref = self.ref(final)
        steady = False
        if ref.kind == "input":
            leaf = self.classes.leaf(final)
            axes, constant, steady = leaf.axes, leaf.constant, leaf.steady
        elif ref.kind == "output":
            axes, constant = self.classes.region.roots[ref.number].axes, False
        else:
            axes, constant = self.orders[final], final in self.constant
        return self._place(ref, axes, memory, constant, steady)

    def _place(
        self, ref: Ref, axes: tuple[str, ...], memory: int, constant: bool, steady: bool = False
    ) -> BufferView:
        shape = tuple(self.space.axes[a] for a in axes)
        buffer = Buffer(str(ref), self.classes.dtype[memory], shape, constant, steady=steady)
        return BufferView(buffer, axes, frozenset(self.encoding.names(self.classes.axes[memory])))

    # ---- steps

    def steps(self) -> list[Step]:
        """All kernels, then copies for outputs that are inputs or equal to other outputs."""
        steps: list[Step] = []
        for piece in self.plan.pieces:
            if piece.scatter is not None:
                steps += self._scatter(piece)
            else:
                steps.append(self._kernel(piece))
        for number in self.extra_roots:
            memory = self.classes.roots[number]
            axes = self.classes.region.roots[number].axes
            target = self._place(Ref("output", number), axes, memory, False)
            steps.append(self._copy(memory, target, Ref("output", number), False))
        between = [str(Ref("temporary", n)) for n in range(self.temporaries)]
        kernels = ended_by_readers([step.kernel for step in steps], between, self.left)
        return [replace(step, kernel=kernel) for step, kernel in zip(steps, kernels)]

    def _kernel(self, piece: FusedKernel) -> Step:
        body = Body(self.plan, piece, self.place)
        body.store({root: self.place(root) for root in piece.roots})
        memories = [*piece.reads, *piece.roots]
        values, self.left = ended_by_memory(body.values, self.left, self.space)
        return self._step(f"k{piece.roots[0]}", values, memories, piece.roots[0])

    def _scatter(self, piece: FusedKernel) -> list[Step]:
        assert piece.scatter is not None
        (target,), (base,) = piece.roots, piece.scatter.memory
        place = self.place(target)
        steps = []
        if self._final(base) != self._final(target):
            steps.append(self._copy(base, place, self.ref(target), True))
        self.left.pop(place.buffer.name, None)  # what its base was there is written over
        body = Body(self.plan, piece, self.place)
        scatter_value(body, piece.scatter, place)
        memories = [*(set(piece.reads) - {base} | self._read_again(piece, base)), target]
        steps.append(self._step(f"k{target}", body.values, memories, target))
        return steps

    def _read_again(self, piece: FusedKernel, base: int) -> set[int]:
        """The base, if what is written depends on it too."""
        loaded = {c for c, n in piece.body if n.op == "load"}
        return {base} if base in loaded | piece.moved else set()

    def _copy(self, memory: int, target: BufferView, ref: Ref, for_scatter: bool) -> Step:
        source = self.place(memory)
        load = load_from(source, self.classes.dtype[memory])
        dtype, store = target.buffer.dtype, plain_store(target)
        value = Value("copy", target.axes, load, dtype, store=store)
        buffers = {source.buffer.name: source.buffer, target.buffer.name: target.buffer}
        arguments = {source.buffer.name: self.ref(memory), target.buffer.name: ref}
        kernel = self._make(f"copy_{ref}", list(buffers.values()), [value])
        return Step(kernel, arguments, False, for_scatter)

    def _step(self, name: str, values: list[Value], memories: list[int], root: int) -> Step:
        buffers: dict[str, Buffer] = {}
        arguments: dict[str, Ref] = {}
        for memory in memories:
            buffer = self.place(memory).buffer
            buffers[buffer.name] = buffer
            arguments[buffer.name] = self.ref(memory)
        kernel = self._make(name, list(buffers.values()), values)
        return Step(kernel, arguments, root in self.constant, root=root)

    def _make(self, name: str, buffers: list[Buffer], values: list[Value]) -> Kernel:
        names = dict.fromkeys(a for v in values for a in v.points)
        axes = {a: self.space.axes[a] for a in names}
        indices = [*axes.values(), *(e for b in buffers for e in b.shape)]
        used = names_of([*indices, *(i for v in values for i in v.indices)])
        sizes = {n: self.space.sizes[n] for n in sorted(used) if n in self.space.sizes}
        hints = {n: h for n, h in self.space.hints.items() if n in sizes}
        return Kernel(name, tuple(buffers), axes, tuple(values), sizes, hints)


# ---- in which order the axes of a temporary stand in memory


Order: TypeAlias = Mapping[tuple[str, str], int]  # (a, b) -> how many want a outside of b


def memory_orders(plan: Plan) -> dict[int, tuple[str, ...]]:
    """Class -> its axes, outermost first, for everything that the plan keeps in memory.

    The orders of inputs and outputs say which axes belong outside of which; where they do not, the
    indices at which these are read. An axis that only constants have stands where the axes stand
    that those constants pair it with: the channels of a convolution like those of what follows it.
    Where nothing is said, such axes stand inside of the others (a projection's features stay
    contiguous), and so do axes that constants have and sums are over. Where rows of matrices are
    multiplied as they lie, a weight that is taken apart in every run lies as the constants that it
    is made of, and what is multiplied with it rather so than as others would have it.
    """
    classes, region = plan.classes, plan.classes.region
    leaves = [t.attribute for t in region.terms.nodes if t.op == "input"]
    kept = [root.axes for root in region.roots]
    given = {a for leaf in leaves if not leaf.constant for a in leaf.axes}
    constant_only = {a for leaf in leaves if leaf.constant for a in leaf.axes} - given
    told = _told([*kept, *(leaf.axes for leaf in leaves)])
    reduced = (set(t.attribute) for t in region.terms.nodes if is_reduction(t))
    features = constant_only | set[str]().union(*reduced) & {
        a for leaf in leaves if leaf.constant for a in leaf.axes
    }
    before = _read_in_order(region.terms, told)
    constants = [set(leaf.axes) for leaf in leaves if leaf.constant]
    places = _with_partners(constants, before, constant_only.difference(*kept))
    own = [_made_of(plan, piece) if plan.in_rows else Counter() for piece in plan.pieces]
    places = _first(sum(own, Counter()), places)
    return {
        root: _sorted(classes.encoding.names(classes.axes[root]), mine, places, features)
        for piece, mine in zip(plan.pieces, own) for root in piece.roots
    }  # fmt: skip


def _told(orders: Iterable[tuple[str, ...]]) -> Counter[tuple[str, str]]:
    return Counter(pair for axes in orders for pair in combinations(axes, 2))


def _made_of(plan: Plan, piece: FusedKernel) -> Counter[tuple[str, str]]:
    """What constants say of what is made of them alone, in every run."""
    classes = plan.classes
    alone = all(map(classes.is_constant_input, piece.reads))
    once = any(classes.constant[root] for root in piece.roots)
    reads = sorted(piece.reads) if alone and not once else []
    return _told(classes.leaf(r).axes for r in reads)


def _first(told: Order, before: Order) -> Order:
    """With the pairs of which nothing was told."""
    known = {*told, *((b, a) for a, b in told)}
    return {**told, **{pair: n for pair, n in before.items() if pair not in known}}


def _read_in_order(terms: Terms, before: Order) -> Order:
    """With pairs of which nothing was known: the axes in the indices of a read, in the order of
    the axes that it reads (the channels of a window's points stay inside of its rows)."""
    found = Counter[tuple[str, str]]()
    for node in terms.nodes:
        if node.op != "read":
            continue
        for (p, here), (q, there) in permutations(node.attribute.entries, 2):
            if before.get((p, q), 0) > before.get((q, p), 0):
                names = product(sorted(here.names()), sorted(there.names()))
                found.update((a, b) for a, b in names if a != b)
    return _first(before, found)


def _with_partners(constants: Sequence[set[str]], before: Order, constant_only: set[str]) -> Order:
    """With the places of their partners for axes that only constants bring in, and no output."""
    places = dict(before)
    for axes in constants:
        pairs = [(a, partner) for a in axes & constant_only for partner in axes - constant_only]
        for (outer, inner), count in before.items():
            for a, partner in pairs:
                if outer == partner and inner not in axes:
                    places[a, inner] = places.get((a, inner), 0) + count
                if inner == partner and outer not in axes:
                    places[outer, a] = places.get((outer, a), 0) + count
    return places


def _sorted(
    names: Iterable[str], own: Order, before: Order, features: set[str]
) -> tuple[str, ...]:
    """Repeatedly the axis that fewest others want outside of it: by its own order, then by that of
    all."""
    rest, before, mine = list(names), _first(own, before), {a for pair in own for a in pair}
    order: list[str] = []
    while rest:

        def unwanted(a: str) -> tuple[int, ...]:
            against = (sum(pairs.get((b, a), 0) > pairs.get((a, b), 0) for b in rest)
                       for pairs in (own, before))  # fmt: skip
            return *against, a not in mine, a in features, rest.index(a)

        first = min(rest, key=unwanted)
        order.append(first)
        rest.remove(first)
    return tuple(order)

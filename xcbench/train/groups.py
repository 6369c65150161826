"""Groups of parameters, named by patterns, that learn at different rates; and one Adam per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from xcbench.errors import InputError
from xcbench.nn import Adam
from xcbench.train.schedules import Schedule


@dataclass(frozen=True)
class Group:
    """How the parameters whose names match a pattern learn."""

    pattern: str = "*"
    """Of parameter names: `*` stands for any characters, `?` for one. Of several that match, the longest counts."""
    lr: float | None = None
    """None for the `lr` of the training."""
    schedule: Schedule | None = None
    """None for the schedule of the training."""
    weight_decay: float = 0.0
    """Of matrices, decoupled from the gradient as in AdamW. Vectors (biases, gates, norms) have none."""
    accumulate: int = 1
    """The gradients of so many steps are summed before the parameters are updated."""
    average: bool = True
    """Whether the parameters take part in the averaging of weights."""

    def __post_init__(self) -> None:
        lr = self.lr or 0.0
        if self.accumulate < 1 or self.weight_decay < 0 or lr < 0:
            raise ValueError("accumulate is at least 1, lr and weight_decay are not negative")
        if lr * self.weight_decay >= 1:
            raise ValueError(f"lr times weight_decay is less than 1, got {lr} and {self.weight_decay}")


class GroupedAdam:
    """One Adam per group of parameters.

    Parameters
    ----------
    module
        The module whose parameters are updated.
    groups
        By the names that messages give them.
    rest
        The group of the parameters that match no pattern. Its `lr` and `schedule` also serve groups without their own.
    betas, eps, lr_factors
        As in `Adam`, for all groups.
    """

    def __init__(
        self,
        module: nn.Module,
        groups: Mapping[str, Group],
        rest: Group,
        betas: tuple[float, float],
        eps: float,
        lr_factors: Mapping[str, float],
    ) -> None:
        names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.betas = betas
        self.parts: list[tuple[Group, Adam]] = []
        for group, members in _members(names, groups, rest):
            lr = rest.lr if group.lr is None else group.lr
            own = replace(group, lr=lr, schedule=group.schedule or rest.schedule)
            assert own.lr is not None
            adam = Adam(module, own.lr, betas, eps, lr_factors, own.weight_decay, members)
            self.parts.append((own, adam))
        self._held: dict[str, Tensor] = {}  # sums of the gradients of earlier steps, by parameter

    @torch.no_grad()
    def step(self, step: int, total: int) -> None:
        """Update the groups whose turn it is in step `step` of `total`, and hold the gradients of the others."""
        for group, adam in self.parts:
            self._add_held(adam.parameters)
            if _is_due(group, step + 1, total):
                assert group.lr is not None
                assert group.schedule is not None
                adam.lr = group.lr * group.schedule.factor(step, total)
                adam.betas = (group.schedule.beta1(step, total, self.betas[0]), self.betas[1])
                adam.step()
            else:
                self._hold(adam.parameters)

    def holds_nothing(self, done: int, total: int) -> bool:
        """Whether no gradients are held after so many steps. Only then does `state` return all there is."""
        return all(_is_due(group, done, total) for group, _ in self.parts)

    def settle(self) -> None:
        """Bring all rows of all tables up to date; see `Adam.settle`."""
        for _, adam in self.parts:
            adam.settle()

    def close(self) -> None:
        """Do the same for the last time; see `Adam.close`."""
        for _, adam in self.parts:
            adam.close()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint needs, by name."""
        state: dict[str, Tensor] = {}
        for _, adam in self.parts:
            state |= adam.state()
        return state

    def resume(self, steps: int) -> None:
        """Continue after so many steps, when the tensors of `state` have been loaded."""
        for group, adam in self.parts:
            adam.steps = steps // group.accumulate

    def averaged(self) -> dict[str, nn.Parameter]:
        """Return the parameters that take part in the averaging of weights, by name."""
        found: dict[str, nn.Parameter] = {}
        for group, adam in self.parts:
            if group.average:
                found |= adam.parameters
        return found

    def _hold(self, parameters: Mapping[str, nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                self._held[name] = parameter.grad
                parameter.grad = None

    def _add_held(self, parameters: Mapping[str, nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            held = self._held.pop(name, None)
            if held is None:
                continue
            if parameter.grad is not None:
                held += parameter.grad
            parameter.grad = held


def _is_due(group: Group, done: int, total: int) -> bool:
    """Whether a group is updated when so many steps are done. The last step updates all that is left."""
    return done % group.accumulate == 0 or done == total


def _members(names: Sequence[str], groups: Mapping[str, Group], rest: Group) -> list[tuple[Group, list[str]]]:
    """Return the parameters of each group, as far as it has any."""
    members: dict[str, list[str]] = {name: [] for name in groups}
    of_rest = []
    for name in names:
        matching = [key for key, group in groups.items() if fnmatchcase(name, group.pattern)]
        if matching:
            members[max(matching, key=lambda key: len(groups[key].pattern))].append(name)
        else:
            of_rest.append(name)

    empty = [key for key, found in members.items() if not found]
    if empty:
        pattern = groups[empty[0]].pattern
        raise InputError(f"group {empty[0]}: no parameter matches {pattern!r}; there are {', '.join(names)}")

    parts = [(groups[key], found) for key, found in members.items()]
    if of_rest:
        parts.append((rest, of_rest))
    return parts

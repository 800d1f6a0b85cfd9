"""Out with the sigmoid, and then?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge


def without_sigmoid(model):
    return model[:-1], nn.BCEWithLogitsLoss(), lambda logits: logits > 0


def _gate(scale: float) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
    with torch.no_grad():
        model[2].weight.mul_(scale)
    return model


def _check_without_sigmoid(answer: Callable[..., Any], judge: Judge) -> None:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(5))
    for scale in (1.0, 3.0):
        model = _gate(scale)
        got = judge.is_a(answer(model), (tuple, list), "a tuple: network, loss, decide")
        if len(got) != 3:
            judge.no("three", seen=f"{len(got)} things", expected="network, loss function, decide")
        network, loss_fn, decide = got
        judge.is_a(network, nn.Module, "a module")
        probabilities = model(x).detach()
        logits = judge.is_a(network(x), Tensor, "a tensor from the network")
        if torch.allclose(logits, probabilities):
            judge.no("sigmoid-stays", seen=f"outputs from {logits.min():.2f} to {logits.max():.2f}")
        if logits.shape != probabilities.shape or not torch.allclose(
            logits, torch.logit(probabilities), atol=1e-4
        ):
            judge.no("other-network", seen=logits[0], expected=torch.logit(probabilities[0]))
        if {id(p) for p in network.parameters()} != {id(p) for p in model.parameters()}:
            judge.no("copies", seen="other parameter objects", expected="those of the model")
        _judge_loss(loss_fn, logits.detach(), probabilities, judge)
        _judge_decide(decide, logits.detach(), probabilities, judge)


def _judge_loss(loss_fn: Any, logits: Tensor, probabilities: Tensor, judge: Judge) -> None:
    targets = (torch.arange(len(logits)) % 3 == 0).float().unsqueeze(1)
    right = F.binary_cross_entropy(probabilities, targets)
    try:
        got = judge.number(loss_fn(logits, targets).detach())
    except RuntimeError as error:  # probabilities outside 0 to 1
        judge.no("no-logits", seen=str(error).split("\n")[0], expected="a loss of logits")
    known = {
        "squared": F.mse_loss(logits, targets),
        "squared-outputs": F.mse_loss(probabilities, targets),
        "twice": F.binary_cross_entropy_with_logits(probabilities, targets),
        "sum": F.binary_cross_entropy(probabilities, targets, reduction="sum"),
    }
    if not math.isclose(got, right, rel_tol=1e-4):
        like = [n for n, v in known.items() if math.isclose(got, v, rel_tol=1e-4)]
        kind = {"squared-outputs": "squared"}.get(like[0], like[0]) if like else "other-loss"
        judge.no(kind, seen=got, expected=float(right))
    far = torch.tensor([[200.0], [-200.0]])
    got = loss_fn(far, torch.tensor([[0.0], [1.0]]))
    if not math.isclose(float(got), 200.0, rel_tol=1e-4):
        judge.no("saturates", seen=f"{float(got):g} for logits of ±200", expected="200")


def _judge_decide(decide: Any, logits: Tensor, probabilities: Tensor, judge: Judge) -> None:
    if not callable(decide):
        judge.no("no-decide", seen=decide, expected="a function of logits")
    edges = torch.tensor([[-2.0], [-0.1], [0.0], [0.2], [0.7], [3.0]])
    for values, expected in ((edges, torch.sigmoid(edges) > 0.5), (logits, probabilities > 0.5)):
        got = judge.is_a(decide(values), Tensor, "a tensor from decide")
        if got.dtype != torch.bool:
            judge.no("not-bool", seen=got.dtype, expected=torch.bool)
        if torch.equal(got, expected):
            continue
        kind = "other-decision"
        if torch.equal(got, values > 0.5):
            kind = "old-threshold"
        elif torch.equal(got, ~expected):
            kind = "turned-round"
        judge.no(
            kind, seen=f"{int(got.sum())} of {len(got)} decided yes", expected=int(expected.sum())
        )


EXERCISE = Exercise(
    id="08.without_sigmoid",
    title="Out with the sigmoid, and then?",
    level=2,
    minutes=8,
    task="""
A tutorial trains `nn.Sequential(…, nn.Linear(64, 1), nn.Sigmoid())` with `nn.BCELoss`. Under CUDA's autocast that loss is
refused, and the tutorial, without a word, goes on with `nn.MSELoss`: another training. Write `without_sigmoid(model)`
for a `Sequential` that ends in a sigmoid, and return three things: the **network** that gives logits, made of
the same parameters (the optimiser holds them); the **loss function** that equals `BCELoss` on the old outputs and is
allowed under autocast; and a function **decide**, which maps logits to a bool tensor that is True where the old output was
above 0.5.
""",
    hints=(
        "A slice of a `Sequential` is a `Sequential` of the same layers.",
        "There is a loss that has the sigmoid inside. If the network keeps its own, there are two of them.",
        "The sigmoid of which logit is 0.5?",
    ),
    reference=without_sigmoid,
    check_answer=_check_without_sigmoid,
    why="Three lines change together: the last layer, the loss, and the threshold. Who forgets the third measures an "
    "accuracy that is too low, and looks for the fault in the training.",
    diagnoses={
        "three": "Return three things: the network, the loss function, and decide.",
        "sigmoid-stays": "The network still ends in its sigmoid. With a loss that has one inside there would be two.",
        "other-network": "The network's outputs are not the logits of the old model's.",
        "copies": "These are other parameters than the model's. The optimiser would go on training the old ones.",
        "squared": "That is the mean squared error: another loss, and another training.",
        "no-logits": "This loss wants probabilities from 0 to 1. Autocast refuses it, and logits do not fit.",
        "saturates": "For logits far from 0 the loss is wrong: the sigmoid is 0 or 1 there before the logarithm "
        "is taken.",
        "sum": "The loss is the sum over the batch, not the mean.",
        "twice": "Here a sigmoid is applied twice.",
        "other-loss": "The loss is not that of `BCELoss` on the old outputs.",
        "no-decide": "The third thing must be a function of logits.",
        "not-bool": "`decide` must return a tensor of True and False.",
        "old-threshold": "0.5 is the threshold for probabilities. Which logit belongs to it?",
        "turned-round": "Yes and no are exchanged.",
        "other-decision": "The decisions are not those of the old model.",
    },
)

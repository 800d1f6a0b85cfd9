"""Known answers to 08.keep_best."""

import copy


def _by_clones(model, train_epoch, score, epochs):
    history = []
    for _ in range(epochs):
        train_epoch(model)
        history.append(
            (score(model), {k: v.detach().clone() for k, v in model.state_dict().items()})
        )
    best = max(history, key=lambda entry: entry[0])
    model.load_state_dict(best[1])
    return best[0]


def _by_copies(model, train_epoch, score, epochs):
    train_epoch(model)
    best, kept, at = score(model), copy.deepcopy(model), 1
    for epoch in range(2, epochs + 1):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept, at = found, copy.deepcopy(model), epoch
    if at < epochs:  # the last one is there already
        model.load_state_dict(kept.state_dict(), assign=True)
    return best


_COPY = "copy.deepcopy(model.state_dict())"

WRONG = {
    "no-copy": {_COPY: "{k: v.cpu() for k, v in model.state_dict().items()}"},
    "never-loaded": {"model.load_state_dict(kept)": "model = kept"},
}
RIGHT = {"by clones": _by_clones, "by copies": _by_copies}

"""Known answers to 09.keep_best."""


def _by_clones(model, train_epoch, score, epochs):
    history = []
    for _ in range(epochs):
        train_epoch(model)
        history.append((score(model), {k: v.detach().clone() for k, v in model.state_dict().items()}))
    best = max(history, key=lambda entry: entry[0])
    model.load_state_dict(best[1])
    return best[0]


_COPY = "copy.deepcopy(model.state_dict())"

WRONG = {
    "no-copy": {_COPY: "{k: v.cpu() for k, v in model.state_dict().items()}"},
    "never-loaded": {"model.load_state_dict(kept)": "model = kept"},
}
RIGHT = {"by clones": _by_clones}

"""Known answers to lesson 08, and a step that many of them make."""


def stepped(loss, optimizer):
    """Make an optimiser step on ``loss``; return the loss, detached."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()

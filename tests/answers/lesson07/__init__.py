"""Known answers to lesson 07, and a step that many of them make."""


def stepped(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()

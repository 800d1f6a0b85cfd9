"""Known wrong answers to 08.first_tokens, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson08.first_tokens import first_tokens


def _tokens_as_views(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, 0] for x in batches])


def _tokens_contiguous(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, 0].contiguous() for x in batches])


def _tokens_detached(encoder, batches):
    return torch.cat([encoder(x).detach()[:, 0].clone() for x in batches])


def _tokens_of_one_row(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[0].clone() for x in batches])


def _tokens_at_the_end(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, -1].clone() for x in batches])


def _tokens_of_a_list(encoder, batches):
    return first_tokens(encoder, list(batches))


WRONG = {
    "views": _tokens_as_views,
    "some-views": _tokens_contiguous,
    "graph": _tokens_detached,
    "keeps-batches": _tokens_of_a_list,
    "other-shape": _tokens_of_one_row,
    "other-tokens": _tokens_at_the_end,
}

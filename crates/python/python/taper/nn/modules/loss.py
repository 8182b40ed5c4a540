"""Losses: a table of names, settings with their defaults, tensors among the settings, and functions."""

from .. import functional as F
from .module import Module

#: Class, function, settings before `reduction` in order with their defaults, and settings behind it.
_TABLE = (
    ("MSELoss", F.mse_loss, {}, {}),
    ("L1Loss", F.l1_loss, {}, {}),
    ("CrossEntropyLoss", F.cross_entropy, {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None},
     {"label_smoothing": 0.0}),
    ("NLLLoss", F.nll_loss, {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None}, {}),
    ("BCELoss", F.binary_cross_entropy, {"weight": None, "size_average": None, "reduce": None}, {}),
    ("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits,
     {"weight": None, "size_average": None, "reduce": None}, {"pos_weight": None}),
    ("SmoothL1Loss", F.smooth_l1_loss, {"size_average": None, "reduce": None}, {"beta": 1.0}),
    ("HuberLoss", F.huber_loss, {}, {"delta": 1.0}),
    ("KLDivLoss", F.kl_div, {"size_average": None, "reduce": None}, {"log_target": False}),
    ("PoissonNLLLoss", F.poisson_nll_loss,
     {"log_input": True, "full": False, "size_average": None, "eps": 1e-8, "reduce": None}, {}),
    ("GaussianNLLLoss", F.gaussian_nll_loss, {"full": False, "eps": 1e-6}, {}),
    ("MarginRankingLoss", F.margin_ranking_loss, {"margin": 0.0, "size_average": None, "reduce": None}, {}),
    ("CosineEmbeddingLoss", F.cosine_embedding_loss, {"margin": 0.0, "size_average": None, "reduce": None}, {}),
    ("TripletMarginLoss", F.triplet_margin_loss,
     {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "size_average": None, "reduce": None}, {}),
    ("SoftMarginLoss", F.soft_margin_loss, {"size_average": None, "reduce": None}, {}),
    ("HingeEmbeddingLoss", F.hinge_embedding_loss, {"margin": 1.0, "size_average": None, "reduce": None}, {}),
    ("MultiMarginLoss", F.multi_margin_loss,
     {"p": 1, "margin": 1.0, "weight": None, "size_average": None, "reduce": None}, {}),
    ("CTCLoss", F.ctc_loss, {"blank": 0}, {"zero_infinity": False}),
)
#: The settings that are tensors, and so buffers.
_TENSORS = ("weight", "pos_weight")


def _loss(name, function, before, behind):
    settings = {**before, "reduction": "mean", **behind}

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        unknown = set(kwargs) - set(settings)
        if unknown or len(args) > len(settings):
            raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{''.join(sorted(unknown))}'")
        given = {**settings, **dict(zip(settings, args)), **kwargs}
        averaged, reduced = given.pop("size_average", None), given.pop("reduce", None)
        if averaged is not None or reduced is not None:
            given["reduction"] = "none" if reduced is False else "sum" if averaged is False else "mean"
        for key, value in given.items():
            if key in _TENSORS:
                self.register_buffer(key, value)
            else:
                setattr(self, key, value)

    named = [key for key in settings if key not in ("size_average", "reduce")]

    def forward(self, *tensors):
        return function(*tensors, **{key: getattr(self, key) for key in named})

    return type(name, (Module,), {"__init__": __init__, "forward": forward, "__module__": __name__})


for _row in _TABLE:
    globals()[_row[0]] = _loss(*_row)

__all__ = [row[0] for row in _TABLE] + ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

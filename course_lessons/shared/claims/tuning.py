"""The claims of what tuning gains: mixed precision; loading, copying, accumulating."""

from __future__ import annotations

from .documents import CHAPTER, CORE, CPU, FULL, GPU, GUIDE, HALF
from .numbers import Ratio, Value
from .weighing import ERROR, MEMORY, Claim

AMP = "Mixed precision"
LOADING = "Loading, copying, accumulating"


def _amp(experiment: str, quantity: str = "time", weighed: bool = True) -> tuple[Ratio, ...]:
    """Return the gain of 16 bits on an accelerator and, as related, on a CPU."""
    return (
        Ratio(experiment, FULL, HALF, quantity, where=GPU, weighed=weighed),
        Ratio(experiment, FULL, HALF, quantity, where=CPU, weighed=False),
    )


INFERENCE = Ratio("resnet50_inference", FULL, HALF, where=GPU, weighed=False)
PURE = Ratio(
    "pure_bf16_training",
    {"precision": "fp32"},
    {"precision": "pure bf16"},
    "peak memory",
    weighed=False,
)

TUNING: tuple[Claim, ...] = (
    Claim(
        id="amp-speed",
        group=AMP,
        text="Mixed precision makes training 1.5 to 2 times as fast",
        quote="可加速 1.5-2x",
        document=CHAPTER,
        section="要点总结 (Key points)",
        low=1.5,
        high=2,
        needs="Time spent in matrix products and convolutions, and units for 16 bits that are about twice as fast as what "
        "they replace. On the document's own network, 20 → 64 → 32 → 1, there is nothing to gain.",
        numbers=(
            *_amp("mlp_step"),
            *_amp("cnn_step"),
            *_amp("resnet50_step"),
            *_amp("bert_large_step"),
            *_amp("amp_training"),
            INFERENCE,
        ),
        word="Depends",
        verdict="{inside} of {count} gains lie near that range; all: {range}. More where float32 has no tensor cores, less where TF32 works "
        "already. Where the GPU waits for Python little is gained, and often something lost.",
        short="AMP, speed",
    ),
    Claim(
        id="amp-pyramid",
        group=AMP,
        text="Mixed precision makes training 30 to 50 % faster",
        quote="30-50%加速",
        document=CORE,
        section="八、性能优化金字塔 (The pyramid of tuning)",
        low=1.3,
        high=1.5,
        needs="The same as for 1.5 to 2 times, which another of these documents claims.",
        numbers=(
            *_amp("cnn_step"),
            *_amp("resnet50_step"),
            *_amp("bert_large_step"),
            *_amp("amp_training"),
        ),
        word="Depends",
        verdict="{inside} of {count} gains lie near it; all: {range}.",
        short="AMP, speed (pyramid)",
    ),
    Claim(
        id="amp-resnet",
        group=AMP,
        text="Mixed precision trains ResNet-50 in 40 minutes instead of 1 hour",
        quote="ResNet50|1小时|40分钟",
        document=CORE,
        section="六、性能提升效果 (What is gained)",
        low=1.5,
        high=1.5,
        needs="A GPU whose float32 is already quick, or a loader that cannot keep up.",
        numbers=_amp("resnet50_step"),
        word="Depends",
        verdict="{inside} of {count} gains lie near it, against TF32 and with a large batch; all: {range}, the least with 4 images a step.",
        short="AMP, ResNet-50",
    ),
    Claim(
        id="amp-bert",
        group=AMP,
        text="Mixed precision trains BERT-large in 1.5 days instead of 3",
        quote="BERT-Large|3天|1.5天",
        document=CORE,
        section="六、性能提升效果 (What is gained)",
        low=2,
        high=2,
        needs="A baseline in TF32, and batches that keep the GPU busy.",
        numbers=_amp("bert_large_step"),
        word="Depends",
        verdict="{inside} of {count} gains lie near it, against TF32; all: {range}, the most against float32 on a V100, the least with one "
        "sequence a step on an H200.",
        short="AMP, BERT-large",
    ),
    Claim(
        id="amp-memory",
        group=AMP,
        text="Mixed precision saves about 40 % of the memory",
        quote="节省约 40% 显存",
        document=CHAPTER,
        section="7.6 节省显存的技巧 (Tips to save GPU memory)",
        low=1 / (1 - 0.4),
        high=1 / (1 - 0.4),
        unit=MEMORY,
        needs="Activations that outweigh all else, as with a large batch. Weights, gradients and optimiser stay in float32, "
        "and 16-bit copies of the weights come on top.",
        numbers=(
            *_amp("mlp_step", "peak memory"),
            *_amp("cnn_step", "peak memory"),
            *_amp("resnet50_step", "peak memory"),
            *_amp("bert_large_step", "peak memory"),
            *_amp("amp_training", "peak memory"),
            PURE,
        ),
        word="Depends",
        verdict="{inside} of {count} pairs lie near it; all: {range}. Nothing where weights outweigh activations, as in BERT-large with one sequence. "
        "Most for a CNN against strict float32, whose convolutions took more working memory than TF32's.",
        short="AMP, memory",
    ),
    Claim(
        id="amp-memory-resnet",
        group=AMP,
        text="Mixed precision saves 30 to 50 % of the memory of ResNet-50",
        quote="30-50%",
        document=CORE,
        section="六、性能提升效果 (What is gained)",
        low=1 / (1 - 0.3),
        high=1 / (1 - 0.5),
        unit=MEMORY,
        needs="A large batch: ResNet-50 has 26 million weights and very many activations.",
        numbers=_amp("resnet50_step", "peak memory"),
        word="Depends",
        verdict="{inside} of {count} pairs lie in that range or near it; all: {range}, the least with 4 images a step.",
        short="AMP, memory of ResNet-50",
    ),
    Claim(
        id="amp-memory-bert",
        group=AMP,
        text="Mixed precision saves 40 to 60 % of the memory of BERT-large",
        quote="40-60%",
        document=CORE,
        section="六、性能提升效果 (What is gained)",
        low=1 / (1 - 0.4),
        high=1 / (1 - 0.6),
        unit=MEMORY,
        needs="More than half would need weights and optimiser in 16 bits too, which is not mixed precision.",
        numbers=(*_amp("bert_large_step", "peak memory"), PURE),
        word="Not seen",
        verdict="{range} with one sequence a step: weights, gradients and AdamW shrink by nothing. No pair with a larger batch was found.",
        short="AMP, memory of BERT-large",
    ),
    Claim(
        id="loader",
        group=LOADING,
        text="Efficient data loading makes training 20 to 40 % faster",
        quote="20-40%加速",
        document=CORE,
        section="八、性能优化金字塔 (The pyramid of tuning)",
        low=1.2,
        high=1.4,
        needs="A loader that is a little slower than the training step. Where the step is the slower one, nothing is gained.",
        numbers=(
            Ratio("loader_epoch", {"workers": 0}, {"workers": (2, 4)}),
            Ratio("loading", {"workers": (0, "as given")}, {"workers": (3, 4, 16)}),
        ),
        word="Depends",
        verdict="{inside} of {count} numbers lie near that range; all: {range}. It depends on which of the two "
        "is waiting.",
        short="Loading with workers",
    ),
    Claim(
        id="pinned",
        group=LOADING,
        text="Pinned memory makes copies to the GPU faster",
        quote="pin_memory=True 可以加速CPU到GPU的数据传输",
        document=GUIDE,
        section="完整的GPU训练流程 (The whole GPU training)",
        low=1.05,
        high=None,
        tolerance=1,
        needs="A loop that waits for copies, and memory that was pinned beforehand. Pinning on the spot can cost more than it saves.",
        numbers=(
            Ratio("host_to_device", {"source": "pageable"}, {"source": "pinned"}),
            Ratio("loop_with_copies", {"pinned": False}, {"pinned": True}),
        ),
        word="Depends",
        verdict="Gains go from {least}, in a loop where computing is the limit, to {most}, of a copy alone.",
        short="Pinned memory",
    ),
    Claim(
        id="non-blocking",
        group=LOADING,
        text="Non-blocking copies make training faster",
        quote="使用非阻塞内存传输",
        document=CORE,
        section="三、性能优化技巧 (Tuning tips)",
        low=1.05,
        high=None,
        tolerance=1,
        needs="Pinned memory, and work for the host to do in the meantime.",
        numbers=(
            Ratio("loop_with_copies", {"non_blocking": False}, {"non_blocking": True}),
            Ratio(
                "host_to_device",
                {"non_blocking": False},
                {"non_blocking": True},
                "time until the call returns",
                weighed=False,
            ),
        ),
        word="Depends",
        verdict="In a published loop of copies and compute it gained nothing without pinned memory ({least}), and {most} with it.",
        short="Non-blocking copies",
    ),
    Claim(
        id="cudnn-benchmark",
        group=LOADING,
        text="cudnn.benchmark makes training faster",
        quote="启用CuDNN自动调优",
        document=CORE,
        section="三、性能优化技巧 (Tuning tips)",
        low=1.05,
        high=None,
        tolerance=1,
        needs="Convolutions, and shapes that stay the same: each new shape is searched anew.",
        numbers=(Ratio("cudnn_benchmark", {"benchmark": False}, {"benchmark": True}),),
        word="Depends",
        verdict="{inside} of {count} pairs gain something; all: {range}, the least on an H200. Who gains nothing seldom reports it, and the first step pays "
        "for the search.",
        short="cudnn.benchmark",
    ),
    Claim(
        id="accumulation",
        group=LOADING,
        text="Accumulating over 4 steps has the effect of a batch 4 times as large",
        quote="模拟 4 倍 batch_size 的效果",
        document=CHAPTER,
        section="课后练习 4 (Exercise 4)",
        low=None,
        high=1e-4,
        unit=ERROR,
        tolerance=1,
        needs="Micro-batches of equal size and no BatchNorm: the mean of means is the mean only then, and BatchNorm sees one "
        "micro-batch at a time.",
        numbers=(Value("accumulation", "error as a fraction of the gradient"),),
        word="Depends",
        verdict="Equal to the last digits for equal batches; off by as much as {most} with a smaller last batch "
        "or BatchNorm.",
        short="Accumulation over 4 steps",
        gpu=False,
    ),
)

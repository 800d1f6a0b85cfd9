"""The claims in numbers of the five documents that set the subject, each with its verdict.

Left aside are numbers that claim nothing: choices in code (batch sizes, learning rates, matrix sizes),
figures of speech ("a factory of a thousand"), and the sample output of ``nvidia-smi``. One of the five
documents has no number of the other kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from .documents import CHAPTER, CORE, CPU, GPU, GUIDE, HALF, METHODS
from .numbers import Rate, Ratio, Value
from .tuning import TUNING
from .weighing import Claim

VERSUS = "A GPU against a CPU"
HARDWARE = "Hardware"
PLATFORMS = "Free platforms"

AMP_AND_GPU = {**CPU, "precision": "fp32"}, {**GPU, **HALF}
TRAINING = ("cifar_step", "bert_base_step")


def _gpu(experiment: str, **where: str) -> Ratio:
    """Return the times of a CPU over those of an accelerator."""
    return Ratio(experiment, CPU, GPU, where=where)


SLOW_SCRIPT = Ratio("ladder", CPU, GPU, "rate", where={"network": "tutorial", "rung": "none"})
"""The network of PyTorch's CIFAR-10 tutorial, trained as there: 4 images a step."""


def _fastest(where: Mapping[str, str]) -> Value:
    """Return the rate of that network after every step of the capstone that both kinds of device know."""
    return Value("ladder", "rate", {**where, "network": "tutorial", "rung": "16 bits"})


PRINTED = (
    Ratio("training", {"processor": "CPU"}, {"processor": "GPU"}),
    Ratio("kernels", {"processor": "CPU"}, {"processor": "GPU"}, weighed=False),
)
"""Times, or ratios, that others printed of the same training, or kernel, on a CPU and on a GPU."""


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="gpu-speed",
        group=VERSUS,
        text="Training is 10 to 100 times as fast on a GPU",
        quote="快10-100倍",
        document=GUIDE,
        section="为什么用GPU? (Why use a GPU?)",
        low=10,
        high=100,
        needs="A network large enough to fill the GPU, a batch large enough, data that arrive in time, and a "
        "CPU that is not a large server.",
        numbers=(*(_gpu(name) for name in TRAINING), *PRINTED),
        word="Depends",
        verdict="{inside} of {count} pairs lie in that range; all: {range}. Very small networks were faster on the CPU.",
        short="GPU against CPU, training",
    ),
    Claim(
        id="gpu-amp",
        group=VERSUS,
        text="One GPU with mixed precision is 10 times as fast, for most tasks",
        quote="对于大多数任务，使用单个GPU配合混合精度训练即可获得10倍加速",
        document=CORE,
        section="八、最佳实践总结 (Best practices, a summary)",
        low=10,
        high=10,
        needs="If mixed precision brings 1.5 to 2 times, a task for which the GPU was 5 to 7 times as fast as the CPU before. "
        "Other tasks gain less, or far more.",
        numbers=(
            *(Ratio(name, *AMP_AND_GPU) for name in ("mlp_step", "cnn_step", "resnet50_step")),
            Ratio("resnet50_inference", *AMP_AND_GPU, weighed=False, items=100),
        ),
        word="Not seen",
        verdict="No one number can hold for most tasks: {range} on an H200 against two CPU cores, the least with a small "
        "MLP, the most with a CNN. Two cores are few: beside a server's CPU these numbers would be smaller.",
        short="GPU with AMP against CPU",
    ),
    Claim(
        id="cifar-ratio",
        group=VERSUS,
        text="100 epochs of CIFAR-10 are 10 times as fast on a GPU",
        quote="CIFAR10训练（100轮）|25秒|2.5秒|10×",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=10,
        high=10,
        needs="The same network, batch and precision on both sides; the document names none of them, nor the hardware.",
        numbers=(_gpu("cifar_step"), SLOW_SCRIPT),
        word="Not seen",
        verdict="Possible for some network and pair of machines. An H200 against two CPU cores: {range}, the least with 4 images a "
        "step. With a server's CPU 10 may be among them.",
        short="CIFAR-10, GPU against CPU",
    ),
    Claim(
        id="cifar-cpu-rate",
        group=VERSUS,
        text="A CPU trains 100 epochs of CIFAR-10 in 25 s, which is 200,000 images a second",
        quote="25秒",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=200_000,
        high=200_000,
        unit="images/s",
        tolerance=2,
        needs="With a network as small as that of `cifar_step`, 74 MFLOP an image, 15 TFLOP/s in float32.",
        numbers=(Rate("cifar_step", "batch", CPU), _fastest(CPU)),
        word="Not seen",
        verdict="Two small CNNs train on {range} on the two cores recorded here.",
        short="CIFAR-10 on a CPU in 25 s",
        gpu=False,
    ),
    Claim(
        id="cifar-gpu-rate",
        group=VERSUS,
        text="A GPU trains 100 epochs of CIFAR-10 in 2.5 s, which is 2,000,000 images a second",
        quote="2.5秒",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=2_000_000,
        high=2_000_000,
        unit="images/s",
        tolerance=2,
        needs="A network of two small convolutions, steps of thousands of images that lie on a large GPU: a program made to learn this data set "
        "well, and fast, trains a larger one.",
        numbers=(
            Rate("cifar_step", "batch", GPU),
            _fastest(GPU),
            Rate("cifar10_training", "images"),
        ),
        word="Depends",
        verdict="{inside} of {count} numbers come near it; all: {range}, the most in bare steps of PyTorch's tutorial network on an H200. "
        "Programs written to break the record are far below.",
        short="CIFAR-10 on a GPU in 2.5 s",
    ),
    Claim(
        id="cifar-hours",
        group=VERSUS,
        text="A simple CNN on CIFAR-10 takes hours on a CPU and ten-odd minutes on a GPU",
        quote="可能需要数小时，而用 GPU 可能只需十几分钟",
        document=METHODS,
        section="一、2. GPU：为并行计算而生 (GPU: born for parallel computing)",
        low=6,
        high=49,
        needs="2 to 9 hours against 11 to 19 minutes, as we read it: 6 to 49 times as fast. Another of these documents "
        "has 25 s and 2.5 s for the same task.",
        numbers=(_gpu("cifar_step"), SLOW_SCRIPT),
        word="Depends",
        verdict="{inside} of {count} pairs lie in that range; all: {range}, an H200 against two CPU cores. With 4 images a step the GPU "
        "was slower. Another document has seconds for this task.",
        short="CIFAR-10, hours to minutes",
    ),
    Claim(
        id="days-hours",
        group=VERSUS,
        text="Training time goes from days to hours, or even minutes",
        quote="将训练时间从 “天” 级压缩到 “小时” 甚至 “分钟” 级",
        document=METHODS,
        section="一、2. GPU：为并行计算而生 (GPU: born for parallel computing)",
        low=24,
        high=1440,
        needs="Taken at its word, a change of unit: 24 times (a day to an hour) to 1,440 times (a day to a minute).",
        numbers=(*(_gpu(name) for name in TRAINING), *PRINTED),
        word="Depends",
        verdict="{inside} of {count} pairs are that far apart; none was measured over days. All: {range}.",
        short="Days to hours or minutes",
    ),
    Claim(
        id="resnet-ratio",
        group=VERSUS,
        text="ResNet-50 classifies 100 images 9.7 times as fast on a GPU",
        quote="ResNet50推理（100张）|8.7秒|0.9秒|9.7×",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=9.7,
        high=9.7,
        needs="A stated batch size: the rate of a GPU grows several times from one image at a time to many, the rate of "
        "a CPU hardly.",
        numbers=(Ratio("resnet50_inference", CPU, GPU, where={"precision": "fp32"}, items=100),),
        word="Depends",
        verdict="{inside} of {count} pairs come near it, one image at a time in float32; all: {range}. With many "
        "at a time a GPU gains far more.",
        short="ResNet-50 inference, GPU against CPU",
    ),
    Claim(
        id="resnet-cpu-rate",
        group=VERSUS,
        text="ResNet-50 classifies 100 images in 8.7 s on a CPU, 11.5 a second",
        quote="8.7秒",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=100 / 8.7,
        high=100 / 8.7,
        unit="images/s",
        tolerance=2,
        needs="A CPU of a few cores, or one image at a time.",
        numbers=(Rate("resnet50_inference", 100, CPU),),
        word="Depends",
        verdict="{range} on {count} CPUs; the document does not name its own.",
        short="ResNet-50, 100 images on a CPU in 8.7 s",
        gpu=False,
    ),
    Claim(
        id="resnet-gpu-rate",
        group=VERSUS,
        text="ResNet-50 classifies 100 images in 0.9 s on a GPU, 111 a second",
        quote="0.9秒",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=100 / 0.9,
        high=100 / 0.9,
        unit="images/s",
        tolerance=2,
        needs="One image at a time, or a GPU that is busy otherwise.",
        numbers=(Rate("resnet50_inference", 100, GPU),),
        word="Depends",
        verdict="{inside} of {count} numbers come near it, of one image at a time; with many it is several times "
        "as much (all: {range}).",
        short="ResNet-50, 100 images on a GPU in 0.9 s",
    ),
    Claim(
        id="bert-ratio",
        group=VERSUS,
        text="Fine-tuning BERT on a small data set takes 3 hours on a CPU and 18 minutes on a GPU",
        quote="BERT微调（小数据集）|3小时|18分钟|10×",
        document=CORE,
        section="三、GPU与CPU性能对比 (GPU and CPU compared)",
        low=10,
        high=10,
        needs="A CPU with many cores, or a small GPU. No publication with this pair of times was found.",
        numbers=(_gpu("bert_base_step"),),
        word="Not seen",
        verdict="A step of BERT-base, 8 sequences: {range}, an H200 against two CPU cores. A CPU with many cores may come nearer to 10.",
        short="BERT fine-tuning, GPU against CPU",
    ),
    Claim(
        id="matmul-gpu",
        group=VERSUS,
        text="A product of two 5000 × 5000 matrices is faster on a GPU",
        quote="加速比: {cpu_time / gpu_time:.1f}x",
        document=CHAPTER,
        section="7.1 为什么 GPU 比 CPU 快? (Why is a GPU faster than a CPU?)",
        low=1.05,
        high=None,
        tolerance=1,
        needs="Matrices large enough; the document prints the ratio and names no figure.",
        numbers=(_gpu("matmul", size=5000),),
        word="Open",
        verdict="Certain for this size, not for 32 × 32 (lesson 01). An H200 was timed at it here, no CPU yet.",
        short="Matrix product 5000², GPU against CPU",
    ),
    *TUNING,
    Claim(
        id="bandwidth",
        group=HARDWARE,
        text="A GPU's memory has 5 to 10 times the bandwidth of a CPU's",
        quote="GPU内存带宽是CPU的5-10倍",
        document=CORE,
        section="一、深度学习加速原理 (How deep learning is accelerated)",
        low=5,
        high=10,
        needs="A mid-range GPU beside a CPU with several memory channels.",
        numbers=(
            Ratio("memory_bandwidth", {"memory": "CPU"}, {"memory": "GPU"}, "bandwidth"),
            Ratio("copy", CPU, GPU, where={"numbers": 2**25}),
        ),
        word="Depends",
        verdict="{inside} of {count} pairs lie near that range, of a T4 or a gaming card; all: {range}.",
        short="Memory bandwidth, GPU against CPU",
    ),
    Claim(
        id="cores-4090",
        group=HARDWARE,
        text="An RTX 4090 has 16,384 CUDA cores",
        quote="NVIDIA RTX 4090 有 16384 个 CUDA 核心",
        document=METHODS,
        section="一、2. GPU：为并行计算而生 (GPU: born for parallel computing)",
        low=16_384,
        high=16_384,
        unit="cores",
        tolerance=1,
        needs="Nothing: it is a specification.",
        numbers=(Value("cores", "cores", {"chip": "RTX 4090"}),),
        word="Holds",
        verdict="So says the specification; such a core is one lane of a wide unit.",
        short="Cores of an RTX 4090",
        gpu=False,
    ),
    Claim(
        id="gpu-cores",
        group=HARDWARE,
        text="A GPU has thousands of cores",
        quote="并行执行(几千个核心)",
        document=GUIDE,
        section="为什么用GPU? (Why use a GPU?)",
        low=1000,
        high=None,
        unit="cores",
        tolerance=1,
        needs="The maker's way of counting: a lane that adds and multiplies is a core.",
        numbers=(Value("cores", "cores", {"kind": "GPU"}),),
        word="Holds",
        verdict="{range} on the two cards that are cited.",
        short="Cores of a GPU",
        gpu=False,
    ),
    Claim(
        id="cpu-cores",
        group=HARDWARE,
        text="A CPU has 4 to 32 cores",
        quote="通常 4-32 个",
        document=METHODS,
        section="一、1. CPU：通用但并行能力有限 (CPU: general, with limited parallelism)",
        low=4,
        high=32,
        unit="cores",
        tolerance=1,
        needs="A desktop or a laptop: servers have more, and a free cloud machine has fewer.",
        numbers=(Value("cores", "cores", {"kind": "CPU"}),),
        word="Depends",
        verdict="Right for desktops; the processors cited here have {range}.",
        short="Cores of a CPU",
        gpu=False,
    ),
    Claim(
        id="kaggle-hours",
        group=PLATFORMS,
        text="Kaggle gives 30 hours of GPU a week",
        quote="Tesla P100|每周30小时|需竞赛参与",
        document=CORE,
        section="四、免费GPU平台对比 (Free GPU platforms compared)",
        low=30,
        high=30,
        unit="h",
        tolerance=1,
        needs="The platform's word; it varies from week to week, and no competition is needed.",
        numbers=(Value("free_gpu_time", "time", {"per": "week"}, scale=1 / 3600),),
        word="Holds",
        verdict="Cited only: such limits change. Today's card is a T4; current PyTorch does not run on a P100.",
        short="Kaggle, hours a week",
        gpu=False,
    ),
    Claim(
        id="paperspace-hours",
        group=PLATFORMS,
        text="Paperspace gives sessions of 6 hours on an M4000",
        quote="M4000|6小时/会话|简单易用",
        document=CORE,
        section="四、免费GPU平台对比 (Free GPU platforms compared)",
        low=6,
        high=6,
        unit="h",
        tolerance=1,
        needs="The platform's word. Current PyTorch does not run on a card of that age.",
        numbers=(),
        word="Open",
        verdict="No source that we could check, and an M4000 is too old for current PyTorch.",
        short="Paperspace, hours a session",
        gpu=False,
    ),
)

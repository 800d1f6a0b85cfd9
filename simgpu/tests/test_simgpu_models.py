"""Real models, not written for these tests: a training step on the simulated device is the CPU's."""

import importlib
import time

import pytest
import torch
from support import TABLE, skip
from torch import Tensor
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.everywhere

TITLE = "real models: a training step on the simulated device against the CPU's"


def vit(**settings):
    """Return the settings of a small vision transformer."""
    return {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3, **settings}


# The smallest variant of each family, the side of its images, and what makes it smaller.
TIMM = [
    (
        64,
        {},
        "test_byobnet test_convnext cs3darknet_focus_s dla46x_c edgenext_xx_small "
        "test_efficientnet efficientvit_b0 fastvit_t8 ghostnet_050 hrnet_w18_small "
        "test_mambaout mobilenetv3_small_050 mobilevit_xxs test_nfnet poolformer_s12 "
        "pvt_v2_b0 regnetx_002 repvgg_a0 repvit_m0_9 resnest14d test_resnet rexnet_100 "
        "skresnet18 legacy_xception",
    ),
    (
        64,
        {"img_size": 64},
        "coat_lite_tiny test_coatnet efficientformerv2_s0 gcvit_xxtiny levit_128s test_maxvit "
        "mixer_s32_224 mvitv2_tiny nest_tiny pit_ti_224 visformer_tiny test_vit volo_d1_224",
    ),
    (64, vit(), "beit_base_patch16_224 cait_xxs24_224 deit_tiny_distilled_patch16_224"),
    (56, vit(img_size=56), "eva02_tiny_patch14_224"),
    (64, vit(num_heads=4), "xcit_nano_12_p16_224"),
    (64, {"img_size": 64, "depth": 2}, "tnt_s_legacy_patch16_224"),
    (64, {"img_size": 64, "depth": 2, "local_up_to_layer": 1}, "convit_tiny"),
    (
        64,
        {"img_size": 64, "depths": (1, 1, 2, 1)},
        "swin_tiny_patch4_window7_224 swinv2_tiny_window8_256",
    ),
    (64, {"depths": (1, 1, 1, 1)}, "twins_svt_small"),
    (64, {"depths": (1, 1, 1, 1), "embed_dims": (24, 48, 96, 192)}, "davit_tiny"),
    (64, {"growth_rate": 8, "block_config": (2, 2, 2, 2)}, "densenet121"),
    (64, {"layers": (1, 1, 1, 1)}, "res2net50_14w_8s"),
    (240, {"depth": [[1, 1, 0]] * 3}, "crossvit_tiny_240"),
    (224, {"stages": (1, 1, 1, 1), "embed_dim": 24}, "hiera_tiny_224"),
    (80, {}, "inception_v3"),
]

TEXT = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}  # two queries share a key
BOTH = {"d_model": 32, "vocab_size": 64, "pad_token_id": 0, "decoder_start_token_id": 1}
for half in ("encoder", "decoder"):
    BOTH |= {f"{half}_layers": 2, f"{half}_attention_heads": 4, f"{half}_ffn_dim": 64}
VISION = {**TEXT, "image_size": 32, "patch_size": 8}
WINDOWS = {"image_size": 32, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 4)}
SPEECH = {**TEXT, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2)}
SPEECH |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "layerdrop": 0.0}
SPEECH["apply_spec_augment"] = False  # NumPy draws it

# By what the model is given: the class, and its configuration.
TRANSFORMERS = {
    "input_ids labels": {
        **{f"{family}ForCausalLM": GROUPED for family in ("Llama", "Mistral", "Gemma", "Gemma2")},
        **{f"{family}ForCausalLM": GROUPED for family in ("Qwen2", "Qwen3", "Phi3")},
        **{f"{family}ForCausalLM": TEXT for family in ("Phi", "Falcon", "GPTNeoX")},
        "MixtralForCausalLM": {**GROUPED, "num_local_experts": 4},
        "GPT2LMHeadModel": TEXT,
        "OPTForCausalLM": {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
        "MambaForCausalLM": {**TEXT, "state_size": 4},
    },
    "input_ids attention_mask labels": {
        **{f"{family}ForMaskedLM": TEXT for family in ("Bert", "Roberta", "DebertaV2")},
        **{f"{family}ForMaskedLM": TEXT | {"embedding_size": 16} for family in ("Electra", "Albert")},
        "DistilBertForMaskedLM": {**TEXT, "hidden_dim": 64},
        "T5ForConditionalGeneration": {**TEXT, "d_kv": 8, "d_ff": 64, "decoder_start_token_id": 0},
        "BartForConditionalGeneration": BOTH,
    },
    "pixel_values": {"ViTModel": VISION, "SwinModel": {**WINDOWS, "window_size": 4}},
    "input_ids pixel_values": {"CLIPModel": {"text_config": TEXT, "vision_config": VISION}},
    "input_features labels": {
        "WhisperForConditionalGeneration": {**BOTH, "num_mel_bins": 8, "max_source_positions": 20}
    },
    "input_values labels": {"Wav2Vec2ForCTC": SPEECH, "HubertForCTC": SPEECH},
}
GIVEN = {
    "input_ids": lambda: torch.randint(3, 64, (2, 12)),
    "attention_mask": lambda: torch.tensor([[1] * 12, [1] * 7 + [0] * 5]),
    "labels": lambda: torch.randint(3, 64, (2, 12)),
    "pixel_values": lambda: torch.randn(2, 3, 32, 32),
    "input_features": lambda: torch.randn(2, 8, 40),
    "input_values": lambda: torch.randn(2, 800),
}

# By path in torchvision.models: the shape of the input, and settings.
SMALL = {"weights_backbone": None, "min_size": 64, "max_size": 64}
TORCHVISION = {
    "resnet18": ((2, 3, 64, 64), {}),
    "shufflenet_v2_x0_5": ((2, 3, 64, 64), {}),
    "segmentation.lraspp_mobilenet_v3_large": ((2, 3, 64, 64), {"weights_backbone": None}),
    "segmentation.deeplabv3_mobilenet_v3_large": ((2, 3, 64, 64), {"weights_backbone": None}),
    "video.r3d_18": ((1, 3, 4, 32, 32), {}),
    "optical_flow.raft_small": ((1, 3, 128, 128), {}),
    "detection.fasterrcnn_mobilenet_v3_large_320_fpn": ((3, 64, 64), SMALL),
    "detection.retinanet_resnet50_fpn": ((3, 64, 64), SMALL),
}


def library(name):
    """Import a module, or skip the test."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skip(f"{name} cannot be imported here: {error}", until="2027-11-30", missing=True)


def from_timm(name):
    """Return a function that builds a timm model with its arguments."""
    make = library("timm").create_model
    size, settings = next((size, more) for size, more, names in TIMM if name in names.split())
    return lambda: (make(name, num_classes=10, **settings), (torch.randn(2, 3, size, size),), {})


def from_transformers(name):
    """Return a function that builds a transformers model with its arguments."""
    kind = getattr(library("transformers"), name)
    given, table = next((given, table) for given, table in TRANSFORMERS.items() if name in table)
    config = kind.config_class(**table[name])
    return lambda: (kind(config), (), {word: GIVEN[word]() for word in given.split()})


def from_torchvision(path):
    """Return a function that builds a torchvision model with its arguments."""
    shape, settings = TORCHVISION[path]
    folder, _, name = f"torchvision.models.{path}".rpartition(".")
    make = getattr(library(folder), name)

    def build():
        model, image = make(weights=None, **settings), torch.rand(shape)
        if folder.endswith("detection"):
            model.transform.register_forward_hook(seed)  # a size is drawn on the host before
            boxes = torch.tensor([[4.0, 4.0, 40.0, 40.0], [20.0, 10.0, 60.0, 50.0]])
            return model, ([image], [{"boxes": boxes, "labels": torch.tensor([1, 2])}]), {}
        return model, (image, image.flip(-1)) if folder.endswith("flow") else (image,), {}

    return build


MODELS = [(from_timm, name) for *_, names in TIMM for name in names.split()]
MODELS += [(from_transformers, name) for table in TRANSFORMERS.values() for name in table]
MODELS += [(from_torchvision, path) for path in TORCHVISION]


@pytest.fixture(autouse=True)
def _pinned(two_devices, monkeypatch):
    """Make results reproducible: one thread, and ``torch.rand([])`` from a generator of its own.

    Stochastic depth draws with that call, on a GPU from the host's generator.
    """
    rand, threads, host = torch.rand, torch.get_num_threads(), {"generator": torch.Generator()}

    def draw(*args, **kwargs):
        return rand(*args, **kwargs, **(host if args == ([],) else {}))

    monkeypatch.setattr(torch, "rand", draw)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def seed(*_):
    """Seed PyTorch; takes any arguments, to be a hook."""
    torch.manual_seed(1)


def to(device, tree):
    """Return a pytree with its tensors detached, on a device."""
    return pytree.tree_map_only(Tensor, lambda x: x.detach().to(device), tree)


def step(build, device):
    """Build a model, move it, and train one step on a device.

    Return the number of parameters, and the values by stage ("forward", "gradients", "weights") and name.
    """
    seed()
    model, args, kwargs = build()
    args, kwargs = to(device, (args, kwargs))
    optimizer = torch.optim.AdamW(model.train().to(device).parameters(), lr=1e-3)
    seed()
    outputs = [x for x in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(x, Tensor)]
    loss = sum(x.float().pow(2).mean() for x in outputs if x.requires_grad)
    loss.backward()
    optimizer.step()
    found = {
        "forward": {"loss": loss, **{str(i): x for i, x in enumerate(outputs)}},
        "gradients": {n: p.grad for n, p in model.named_parameters() if p.grad is not None},
        "weights": model.state_dict(),
    }
    assert {x.device.type for values in found.values() for x in values.values()} == {device}
    return sum(p.numel() for p in model.parameters()), to("cpu", found)


def differences(expected, found):
    """Yield (stage, description) for each stage whose values are not equal bit for bit."""
    for stage, values in expected.items():
        assert values and values.keys() == found[stage].keys(), stage
        odd = [name for name, x in values.items() if not torch.equal(x, found[stage][name])]
        if odd:
            x, y = values[odd[0]].double(), found[stage][odd[0]].double()
            relative = ((x - y).abs().max() / x.abs().max()).item()
            many = f"{len(odd)} of {len(values)}"
            yield stage, f"{many}, first {odd[0]} by {relative:.1e} of its largest"


@pytest.mark.parametrize(
    ("library_of", "name"), MODELS, ids=[f"{of.__name__[5:]}-{name}" for of, name in MODELS]
)
def test_a_training_step_equals_the_cpus(library_of, name, record_property):
    build = library_of(name)
    started = time.perf_counter()
    parameters, expected = step(build, "cpu")
    _, found = step(build, "sim")
    seconds = time.perf_counter() - started
    different = dict(differences(expected, found))
    verdicts = [f"{stage} {'differ' if stage in different else 'equal'}" for stage in expected]
    line = f"{library_of.__name__[5:]:<12} {name.rpartition('.')[2]:<36} {parameters:>11,}"
    record_property(TABLE + TITLE, f"{line}  {'  '.join(verdicts)}  {seconds:4.1f} s")
    assert not different, different

"""Pretrained image encoders, frozen or partly trained: of timm (`timm:NAME`), and our own (`frozen_resnet9`).

A pretrained encoder reads colour images one by one, with one set of weights for all of them. Its frozen part maps an
image to features. A rollout stores the features instead of the image, so each frame is encoded once, when it is
collected. Trained layers map the features to [B, visual_size].

    image u8 [3, H, W] -- resize, normalise, frozen layers --.-- features -- last layers, projection -- [visual_size]
                                                             '-- rollout

The frozen part computes in bfloat16 on CUDA and in float32 on the CPU. Its weights are part of the policy file, so a
policy is loaded without the file that they came from.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import math
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.errors import ConfigError, shortened
from batchnav.policy import vision
from batchnav.policy.config import ENCODERS, PolicyConfig
from batchnav.policy.encoder import SEResNet9Trunk, projection
from batchnav.policy.observations import is_image
from batchnav.runtime.device import compiled
from batchnav.runtime.files import as_path, open_regular, open_tensors, tensor_errors
from batchnav.runtime.imports import needs_extra
from batchnav.runtime.weights import Source

RANDOM = "random"
"""Value of `weights` for random weights."""
CHANNELS = 3
"""Channels of the images that a pretrained encoder reads."""
GRID_NUMBERS = 2048
"""Most numbers that the projection of a grid of features reads; a 1x1 convolution reduces the channels to it."""
GOALS_PER_STEP = 8
"""On CUDA a step encodes at most N / GOALS_PER_STEP changed goal images of N agents, since a CUDA graph has fixed
shapes. The features of the others are zeros until their turn, in one of the next steps."""


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Settings of all pretrained encoders: the images that they read."""

    images: tuple[str, ...] = ()
    """Names of the images that the model reads. Empty: all images with three channels."""
    goals: tuple[str, ...] = ("imagegoal",)
    """Those images that stay the same over many steps: they are encoded when they change."""
    other_width: int = bounded(32, 2, 512)
    """Base width of the encoder `se_resnet9` that reads the other images, such as depth."""


class PretrainedEncoder(nn.Module):
    """A model for colour images whose first layers may be frozen, and a projection of each image's features.

    Args:
        images: shape (3, H, W) of each image, by name.
        visual_size: width of the output.
        settings: the section of the encoder.
        backbone: the model.
        source: origin of its weights.
        frozen: False where all weights learn.
        unfreeze_last: number of last blocks or stages that learn if it is frozen.
    """

    section: str

    def __init__(
        self, images: Mapping[str, tuple[int, ...]], visual_size: int, settings: ImageSettings, backbone: Backbone,
        source: Source, frozen: bool = True, unfreeze_last: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.settings, self.output_size, self.backbone, self.source = settings, visual_size, backbone, source
        self.tail: nn.Module | None = None
        """The last layers, which learn while the others are frozen."""
        if frozen:
            self.tail = backbone.split(unfreeze_last) if unfreeze_last else None
            backbone.freeze()
        self.eval()
        with torch.no_grad():
            image = torch.zeros(1, CHANNELS, *backbone.size, dtype=torch.uint8, device=torch.get_default_device())
            encoded = backbone(image)
            shape = tuple((encoded if self.tail is None else backbone.pooled(self.tail(encoded))).shape[1:])
        self.feature_shape = tuple(encoded.shape[1:]) if frozen else None
        """Shape of an image's features in the rollout; None where the rollout stores the image."""
        self.heads = nn.ModuleDict({image: _head(shape, visual_size) for image in images})

    @classmethod
    def images_read(cls, read: Mapping[str, spaces.Space], settings: ImageSettings) -> tuple[str, ...]:
        """Names of the images that the model reads, among the spaces of all observations that the policy reads.

        ConfigError where there are images but none that it can read.
        """
        images = {name: space for name, space in read.items() if is_image(space)}
        found = ", ".join(f"{name} {list(space.shape or ())}" for name, space in images.items())
        names = settings.images or tuple(n for n, space in images.items() if (space.shape or ())[0] == CHANNELS)
        for name in names:
            if name not in images or (images[name].shape or ())[0] != CHANNELS:
                raise ConfigError(
                    f"{cls.section}.images: found {shortened(name)}, expected images with {CHANNELS} channels among "
                    f"{found}"
                )
            low = float(cast(spaces.Box, images[name]).low.min())
            if math.isfinite(low) and low < 0.0:
                raise ConfigError(
                    f"{cls.section}.images: found {name} with values from {low:g}, expected colours from 0; name the "
                    f"colour images in {cls.section}.images"
                )
        if images and not names:
            raise ConfigError(
                f"policy.encoder: found a pretrained encoder with images {found}, expected one with {CHANNELS} "
                "channels, such as rgb"
            )
        return names

    def train(self, mode: bool = True) -> PretrainedEncoder:
        """Stay in evaluation mode: acting and learning have equal statistics and no dropout."""
        return super().train(False)

    @torch.no_grad()
    def encode(self, image: torch.Tensor, fixed: bool = True) -> torch.Tensor:
        """Frozen features [B, *feature_shape] of images [B, 3, H, W], bytes or floats in 0..1.

        `fixed`: the batch size is that of all calls, so a compiled backbone may be used.
        """
        return self.backbone(image) if fixed else self.backbone.forward(image)

    def forward(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Features [B, *feature_shape] of the image `name`, or images where none is frozen -> [B, visual_size]."""
        if self.feature_shape is None:
            x = self.backbone(x)
        if self.tail is not None:
            x = self.backbone.pooled(self.tail(x))
        return self.heads[name](x)

    def compile_parts(self) -> None:
        """Run the parts through torch.compile, in place, for static shapes."""
        for part in (self.backbone, self.tail, *self.heads.values()):
            if part is not None:
                compiled(part)


class TimmEncoder(PretrainedEncoder):
    """A model of timm for colour images, and a projection of each image's features.

    Args:
        images: shape (3, H, W) of each image, by name.
        config: the architecture; `config.encoder` is "timm:NAME".
        settings: the section `timm`.

    Raises:
        ConfigError: the model is unknown, or images, settings or weights do not fit it.
        MissingPackageError: timm is not installed.
    """

    section = "timm"

    @dataclass(frozen=True)
    class Config(ImageSettings):
        """Settings of the encoders `timm:NAME`."""

        weights: str = ""
        """File with the model's weights as timm or the model's authors publish them: .safetensors; or .pth, .pt and
        .bin, of which tensors are read only. "random": random weights, for development. "": timm's weights, downloaded
        from Hugging Face at the first use."""
        frozen: bool = True
        """Keep the weights of the model, and store its features in the rollout. False: all weights learn."""
        unfreeze_last: int = bounded(0, 0, 64)
        """Number of last blocks (vision transformers) or stages (ResNet, ConvNeXt) that learn. The rollout stores the
        features before them."""
        features: Literal["cls", "patch_mean", "patch_grid"] = "cls"
        """Features, after the model's final norm. cls: the class token, or the model's own pooled features where it has
        no class token. patch_mean: the mean over patches. patch_grid: all patches, reduced by a 1x1 convolution."""
        image_size: int = bounded(0, 0, 4096)
        """Side to which images are resized, pixels; for vision transformers a multiple of the patch size. 0: the
        images' own size."""

    def __init__(self, images: Mapping[str, tuple[int, ...]], config: PolicyConfig, settings: Config | None = None):
        settings = settings or self.Config()
        size = _common_size(images, settings.image_size)
        model, source = make_model(config.encoder.partition(":")[2], size, settings.weights)
        if settings.unfreeze_last and not settings.frozen:
            raise ConfigError(
                f"timm.unfreeze_last: found {settings.unfreeze_last} with frozen false, expected 0: all layers learn"
            )
        backbone = Backbone(model, size, settings.features)
        rest = settings.frozen, settings.unfreeze_last
        super().__init__(images, config.visual_size, settings, backbone, source, *rest)


class FrozenResNet9(PretrainedEncoder):
    """The trunk of a `se_resnet9` that learned on renders, frozen, and a projection of each image's feature map.

    Arguments are those of `TimmEncoder`, with the section `frozen_resnet9`. ConfigError where the weights do not fit.
    """

    section = "frozen_resnet9"

    @dataclass(frozen=True)
    class Config(ImageSettings):
        """Settings of the encoder `frozen_resnet9`."""

        weights: str = ""
        """A file of `batchnav train encoder`, or the name of a bundled one."""
        base_width: int = bounded(24, 2, 128)
        """Base width of these weights."""

    def __init__(self, images: Mapping[str, tuple[int, ...]], config: PolicyConfig, settings: Config | None = None):
        settings = settings or self.Config()
        size, width = _common_size(images, 0, self.section), settings.base_width
        trunk, source = TrunkModel(size, width), Source(vision.source_of_width(width), "", "", "MIT")
        if weights_are_read():
            if not settings.weights:
                raise ConfigError(f"{self.section}.weights: found none, expected a file of `batchnav train encoder`")
            vision.load_trunk(trunk.trunk, settings.weights, 0, self.section)
            source = vision.trunk_source(settings.weights, width)
        super().__init__(images, config.visual_size, settings, Backbone(trunk, size, "patch_grid"), source)


class TrunkModel(nn.Module):
    """A trunk of `se_resnet9` for images of a size, with the attributes that `Backbone` reads of timm's models."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {"mean": vision.MEAN, "std": vision.STD, "interpolation": "bilinear"}

    def __init__(self, size: tuple[int, int], base_width: int):
        super().__init__()
        settings = SEResNet9Trunk.Config(base_width=base_width)
        self.trunk = SEResNet9Trunk((CHANNELS, *size), PolicyConfig(), settings)
        self.num_features = self.trunk.channels[-1]

    def forward_features(self, image: torch.Tensor) -> torch.Tensor:
        """Last feature map [B, 8 * base_width, H / 32, W / 32] of normalised images [B, 3, H, W]."""
        for stage in self.trunk.stages():
            image = stage(image)
        return image


class Backbone(nn.Module):
    """A model of timm without its classifier, from images to features.

    Args:
        model: the model, for images of `size`.
        size: height and width of its input.
        features: kind of the features (`TimmEncoder.Config.features`).
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, model: nn.Module, size: tuple[int, int], features: str):
        super().__init__()
        self.model, self.size, self.features = model, size, features
        config = cast(dict[str, Any], model.pretrained_cfg)
        for name in ("mean", "std"):
            values = torch.tensor(config[name], dtype=torch.float32, device=torch.get_default_device())
            self.register_buffer(name, values[:, None, None], persistent=False)
        self.mode = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
        self.is_frozen = self.is_split = False
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # annotation of torch

    def freeze(self) -> None:
        """Switch gradients off; from now on the model computes in bfloat16 on CUDA."""
        self.requires_grad_(False)
        self.is_frozen = True

    def split(self, count: int) -> nn.Sequential:
        """Remove the last `count` blocks or stages with the final norm, and return them.

        ConfigError for a model that cannot be split there.
        """
        model: Any = self.model
        kind = type(model).__name__
        parts = {
            "VisionTransformer": lambda: list(model.blocks),
            "ConvNeXt": lambda: list(model.stages),
            "ResNet": lambda: [model.layer1, model.layer2, model.layer3, model.layer4],
        }
        if kind not in parts:
            raise ConfigError(f"timm.unfreeze_last: found a model {kind}, expected one of {', '.join(parts)}, or 0")
        layers = parts[kind]()
        if count >= len(layers):
            raise ConfigError(
                f"timm.unfreeze_last: found {count}, expected at most {len(layers) - 1} of {len(layers)}; set frozen: "
                "false to train the whole model"
            )
        last = layers[-count:]
        if kind == "VisionTransformer":
            model.blocks, last, model.norm = nn.Sequential(*layers[:-count]), [*last, model.norm], nn.Identity()
        elif kind == "ConvNeXt":
            model.stages, last, model.norm_pre = nn.Sequential(*layers[:-count]), [*last, model.norm_pre], nn.Identity()
        else:
            for index in range(len(layers) - count, len(layers)):
                setattr(model, f"layer{index + 1}", nn.Identity())
        self.is_split = True
        return nn.Sequential(*last)

    def _apply(self, fn: Any, recurse: bool = True) -> Backbone:
        """Move the module, as `to` does; a frozen model then has bfloat16 on CUDA and float32 elsewhere."""
        super()._apply(fn, recurse)
        if self.is_frozen:
            self.model.to(torch.bfloat16 if self.mean.device.type == "cuda" else torch.float32)
        return self

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Images [B, 3, H, W], bytes or floats in 0..1 -> features: [B, D], [B, D, h, w], or those before `split`."""
        x = self.prepared(image)
        if not self.is_frozen:
            return self.pooled(cast(Any, self.model).forward_features(x))
        with contextlib.nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False):
            x = cast(Any, self.model).forward_features(x.to(next(self.model.parameters()).dtype))
            return x if self.is_split else self.pooled(x)

    def prepared(self, image: torch.Tensor) -> torch.Tensor:
        """Input of the model, float32: resized, and normalised by mean and standard deviation of its configuration."""
        x = image.float() / 255.0 if image.dtype == torch.uint8 else image.float()
        if tuple(x.shape[2:]) != self.size:
            x = F.interpolate(x, self.size, mode=self.mode, antialias=True).clamp(0.0, 1.0)
        return ((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        """Features from the model's last layer: tokens [B, L, D] after its norm, or a map [B, D, h, w].

        Models that normalise after pooling have their final norm as `fc_norm` or `head.norm`; it is applied here.
        """
        model: Any = self.model
        if x.dim() == 4:
            return self._pooled_map(x)
        prefix, norm = model.num_prefix_tokens, getattr(model, "fc_norm", nn.Identity())
        if self.features == "patch_mean":
            return norm(x[:, prefix:].mean(1))
        if self.features == "patch_grid":
            return norm(x[:, prefix:]).mT.unflatten(2, model.patch_embed.grid_size)
        if getattr(model, "cls_token", None) is not None:
            return norm(x[:, 0])
        return model.forward_head(x, pre_logits=True)

    def _pooled_map(self, x: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        if self.features == "cls":
            return model.forward_head(x, pre_logits=True)
        if x.shape[1] != model.num_features and x.shape[3] == model.num_features:
            x = x.permute(0, 3, 1, 2)  # models such as Swin have channels last
        norm = getattr(model.head, "norm", nn.Identity()) if hasattr(model, "head") else nn.Identity()
        return norm(x) if self.features == "patch_grid" else norm(x.mean((2, 3), keepdim=True)).flatten(1)


def _head(shape: tuple[int, ...], size: int) -> nn.Sequential:
    """Trained layers of one image: features [B, *shape] -> [B, size]."""
    if len(shape) == 1:
        return projection(shape[0], size)
    cells = shape[1] * shape[2]
    channels = max(min(shape[0], GRID_NUMBERS // cells), 1)
    return nn.Sequential(nn.Conv2d(shape[0], channels, 1), nn.ReLU(), nn.Flatten(), *projection(channels * cells, size))


def _common_size(images: Mapping[str, tuple[int, ...]], side: int, section: str = "timm") -> tuple[int, int]:
    """Height and width of the model's input. ConfigError for images of several sizes that are not resized."""
    if side:
        return side, side
    sizes = {shape[1:] for shape in images.values()}
    if len(sizes) > 1:
        found = ", ".join(f"{name} {shape[1]}x{shape[2]}" for name, shape in images.items())
        if section != "timm":
            raise ConfigError(f"{section}.images: found {found}, expected images of one size")
        raise ConfigError(f"timm.image_size: found 0 with images {found}, expected the side to resize them to")
    height, width = sizes.pop()
    return height, width


# Models of timm, and their weights

_WEIGHTS_FOLLOW: ContextVar[bool] = ContextVar("weights_follow", default=False)


@contextlib.contextmanager
def weights_follow() -> Iterator[None]:
    """Context in which encoders are made without reading weights, since the caller loads all tensors afterwards."""
    token = _WEIGHTS_FOLLOW.set(True)
    try:
        yield
    finally:
        _WEIGHTS_FOLLOW.reset(token)


def weights_are_read() -> bool:
    """False under `weights_follow`, and on the device "meta"."""
    return not (_WEIGHTS_FOLLOW.get() or torch.get_default_device().type == "meta")


def import_timm() -> Any:
    """The package timm. MissingPackageError where it is not installed.

    timm imports torchvision. Where torchvision was built for another PyTorch, as PyPI's is beside a PyTorch without
    CUDA, its import fails for lack of compiled operators, none of which timm's models use: their names are declared.
    """
    with needs_extra("vision", "encoder timm:NAME, of the extra 'vision'", "timm"):
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            for operator in ("nms", "qnms"):
                torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float iou) -> Tensor")
            importlib.import_module("torchvision")
        return importlib.import_module("timm")


def make_model(name: str, size: tuple[int, int], weights: str) -> tuple[nn.Module, Source]:
    """A model of timm without classifier for images of `size`, with its weights, and their origin.

    Under `weights_follow`, and on the device "meta", weights are not read.

    ConfigError for an unknown model, a size that does not fit it, or weights that cannot be read.
    """
    timm = import_timm()
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.0)
        raise ConfigError(f"policy.encoder: found {shortened('timm:' + name)}, the nearest model is 'timm:{near[0]}'")
    options: dict[str, Any] = {"pretrained": False, "num_classes": 0}
    try:
        try:
            model = timm.create_model(name, img_size=size, **options)
        except TypeError:  # convolutional models take images of any size
            model = timm.create_model(name, **options)
    except (RuntimeError, ValueError, AssertionError, KeyError) as error:
        raise ConfigError(
            f"policy.encoder: timm cannot make {name!r} for {size[0]}x{size[1]} images: {error}"
        ) from error
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", (1, 1))
    if any(side % of for side, of in zip(size, patch, strict=True)):
        raise ConfigError(
            f"timm.image_size: found images of {size[0]}x{size[1]} pixels, expected multiples of the patch size "
            f"{patch[0]}, such as {max(round(size[0] / patch[0]), 1) * patch[0]}"
        )
    config = model.pretrained_cfg
    tagged = ".".join(filter(None, (name.partition(".")[0], config.get("tag"))))
    source = Source(tagged, RANDOM, "", str(config.get("license") or ""))
    if weights == RANDOM or not weights_are_read():
        return model, source
    path = as_path(weights) if weights else _download(tagged, config)
    _load(model, path)
    return model, source._replace(weights=path.name, sha256=_file_digest(path))


def _download(name: str, config: Mapping[str, Any]) -> Path:
    """The file with timm's weights of a model, from Hugging Face or its cache. ConfigError where there is none."""
    from huggingface_hub import hf_hub_download

    repository, file = config.get("hf_hub_id"), config.get("hf_hub_filename") or "model.safetensors"
    file = {"open_clip_pytorch_model.bin": "open_clip_model.safetensors"}.get(file, file)
    advice = "set timm.weights to a file with them, or to random for development"
    if not repository:
        raise ConfigError(f"timm.weights: found no weights of {name} at Hugging Face; {advice}")
    try:
        return Path(hf_hub_download(repository, file))
    except Exception as error:  # the library's own and those of its HTTP client
        message = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"timm.weights: found no file, and the download of {repository}/{file} failed ({message}); {advice}"
        ) from error


def _load(model: Any, path: Path) -> None:
    """Load the weights of a file, converted as timm does it. ConfigError where they do not fill the model."""
    timm = import_timm()
    tensors, state = _read(path), model.state_dict()
    module = sys.modules[timm.model_entrypoint(model.pretrained_cfg["architecture"]).__module__]
    convert = getattr(module, "checkpoint_filter_fn", getattr(module, "_filter_fn", None))
    with torch.no_grad():
        for value in state.values():
            if value.is_floating_point():
                value.fill_(math.nan)  # what the file lacks stays NaN
    config = {**model.pretrained_cfg, "state_dict": tensors}
    try:
        timm.models.load_pretrained(model, config, num_classes=0, filter_fn=convert, strict=False)
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, AssertionError, IndexError) as error:
        message = " ".join(str(error).split())[:300]
        raise ConfigError(f"timm.weights: {path} does not fit {config['architecture']}: {message}") from error
    missing = [name for name, value in state.items() if value.is_floating_point() and value.isnan().any()]
    if missing:
        raise ConfigError(
            f"timm.weights: {path}: found no finite values for {len(missing)} of {len(state)} tensors of "
            f"{config['architecture']}, such as {missing[0]!r}; expected the weights of this model"
        )


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of a file by name. ConfigError for another kind of file."""
    if path.suffix == ".safetensors":
        try:
            with open_tensors(path, ConfigError) as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except tensor_errors() as error:
            raise ConfigError(f"timm.weights: {path}: not a whole safetensors file ({error})") from error
    if path.suffix not in (".pth", ".pt", ".bin"):
        raise ConfigError(f"timm.weights: found {path}, expected a file .safetensors, .pth, .pt or .bin, or 'random'")
    try:
        with open_regular(path, ConfigError) as file:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except ConfigError:
        raise
    except Exception as error:  # whatever a damaged pickle raises
        message = " ".join(str(error).split())[:200]
        raise ConfigError(f"timm.weights: {path}: not a file of tensors only ({message})") from error
    for key in ("model", "state_dict"):
        found = found.get(key, found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise ConfigError(f"timm.weights: {path}: found no dict of tensors, expected the weights of a model")
    return found


def _file_digest(path: Path) -> str:
    """SHA-256 of a file, as a hexadecimal string."""
    with open_regular(path, ConfigError) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


# Names in a rollout, and features that outlive a step


def features_of(name: str) -> str:
    """Name of an image's features among the observations of a rollout."""
    return f"{name}.features"


class _Kept(NamedTuple):
    """Images of N agents that were encoded, and their features."""

    image: torch.Tensor
    features: torch.Tensor
    due: torch.Tensor
    """bool [N]: encode the image at the next call, whether it changed or not."""


class FeatureMemory:
    """Features of images that stay the same over many steps, of N agents: an image is encoded when it changes.

    Args:
        encoder: the encoder.
        fixed: encode at most N / GOALS_PER_STEP images in each call but the first one after `clear`, without host
            synchronisation, so that a CUDA graph can hold it. False: all that changed.
    """

    def __init__(self, encoder: PretrainedEncoder, fixed: bool):
        self._encoder, self._fixed = encoder, fixed
        self._kept: dict[str, _Kept] = {}
        self._cleared: set[str] = set()

    def clear(self) -> None:
        """Encode all images at the next call."""
        for name, kept in self._kept.items():
            kept.due.fill_(True)
            self._cleared.add(name)

    def restore(self, images: Mapping[str, torch.Tensor], obs: Mapping[str, torch.Tensor]) -> None:
        """Continue with these images [N, 3, H, W] by name and their features in `obs`, where zeros are due."""
        for name in self._encoder.settings.goals:
            if name in images:
                kept, features = self._of(name, images[name]), obs[features_of(name)]
                kept.image.copy_(images[name])
                kept.features.copy_(features)
                kept.due.copy_((features == 0).flatten(1).all(1))
                self._cleared.discard(name)

    def __call__(self, name: str, image: torch.Tensor) -> torch.Tensor:
        """Features of the images [N, 3, H, W]; the tensor is overwritten by the next call."""
        kept = self._of(name, image)
        changed = kept.due | (image != kept.image).flatten(1).any(1)
        if self._fixed and name not in self._cleared:
            return self._fixed_number(kept, image, changed)
        self._cleared.discard(name)
        index = changed.nonzero().flatten()
        if len(index):
            self._keep(kept, index, image[index], self._encoder.encode(image[index], fixed=False))
            kept.due.fill_(False)
        return kept.features

    def _of(self, name: str, image: torch.Tensor) -> _Kept:
        """The tensors of an image, which are allocated at its first call."""
        if name not in self._kept:
            encoder, n, device = self._encoder, len(image), image.device
            shape = (n, *(encoder.feature_shape or ()))
            dtype = next(encoder.backbone.model.parameters()).dtype
            self._kept[name] = _Kept(
                torch.zeros_like(image), torch.zeros(shape, dtype=dtype, device=device),
                torch.ones(n, dtype=torch.bool, device=device),
            )  # fmt: skip
            self._cleared.add(name)
        return self._kept[name]

    def _fixed_number(self, kept: _Kept, image: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
        """Encode the first changed images, a fixed number; the result is zeros where an image waits."""
        n = len(image)
        first = torch.sort(changed.to(torch.int8), descending=True, stable=True).indices[: -(-n // GOALS_PER_STEP)]
        taken, new = changed.index_select(0, first), image.index_select(0, first)
        encoded = self._encoder.encode(new)
        shape = (-1, *(1 for _ in encoded.shape[1:]))
        self._keep(kept, first, new, torch.where(taken.view(shape), encoded, kept.features.index_select(0, first)))
        waiting = changed.index_fill(0, first, False)
        kept.due.copy_(waiting)
        return kept.features.masked_fill(waiting.view(shape), 0.0)

    @staticmethod
    def _keep(kept: _Kept, index: torch.Tensor, image: torch.Tensor, features: torch.Tensor) -> None:
        kept.image.index_copy_(0, index, image)
        kept.features.index_copy_(0, index, features)


ENCODERS["frozen_resnet9"] = FrozenResNet9
ENCODERS.add_family("timm", TimmEncoder)

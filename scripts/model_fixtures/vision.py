#!/usr/bin/env python3
"""Fixtures of networks for pictures, by torchvision, timm and transformers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision timm transformers safetensors
    .venv/bin/python scripts/model_fixtures/vision.py [NAME ...]      # all by default
"""
import json
import sys

import timm
import torch
import torchvision
import transformers
from torch import nn
from torchvision import models as tv
from torchvision.models import densenet, efficientnet, mobilenetv3, regnet, swin_transformer, vgg

import common
from formula import image, write, write_pretrained

TORCHVISION = f"torchvision {torchvision.__version__.split('+')[0]}"
TIMM = f"timm {timm.__version__}"
TRANSFORMERS = f"transformers {transformers.__version__}"
ALL = {}


def fixture(function):
    ALL[function.__name__] = function
    return function


def classifier(name, model, grads, size=32, n=2, reference=TORCHVISION, config=None):
    x = image(n, 3, size, size)
    write(name, model, f"{reference} {type(model).__name__}", config or {}, {"x": x}, lambda m: {"logits": m(x)}, grads)


@fixture
def resnet_basic():
    model = tv.ResNet(tv.resnet.BasicBlock, [2, 1, 1, 1], num_classes=10)
    classifier("resnet_basic", model, ["bn1.weight", "layer2.0.downsample.1.bias", "fc.bias"])


@fixture
def resnet_bottleneck():
    model = tv.ResNet(tv.resnet.Bottleneck, [1, 1, 2, 1], num_classes=10, groups=4, width_per_group=8,
                      replace_stride_with_dilation=[False, False, True])
    classifier("resnet_bottleneck", model, ["conv1.weight", "layer3.1.bn2.weight", "layer4.0.downsample.1.bias"])


@fixture
def vgg_bn():
    with torch.device("meta"):
        model = vgg.VGG(nn.Sequential(), num_classes=10)
    model.features = vgg.make_layers([6, "M", 8, 12, "M"], batch_norm=True)
    model.classifier = nn.Sequential(nn.Linear(12 * 49, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10))
    classifier("vgg_bn", model, ["features.0.weight", "features.5.bias", "classifier.6.weight"])


@fixture
def mobilenet_v2():
    model = tv.MobileNetV2(num_classes=10, width_mult=0.5, inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2], [4, 32, 1, 2]])
    classifier("mobilenet_v2", model, ["features.0.0.weight", "features.2.conv.1.0.weight", "classifier.1.bias"])


@fixture
def mobilenet_v3():
    def block(*row):
        return mobilenetv3.InvertedResidualConfig(*row, dilation=1, width_mult=1.0)
    rows = [block(16, 3, 16, 16, True, "RE", 2), block(16, 5, 40, 24, False, "HS", 1), block(24, 5, 64, 24, True, "HS", 1)]
    model = mobilenetv3.MobileNetV3(rows, 32, num_classes=10)
    classifier("mobilenet_v3", model, ["features.0.0.weight", "features.1.block.1.fc1.weight", "classifier.3.bias"])


@fixture
def efficientnet_v1():
    rows = [efficientnet.MBConvConfig(1, 3, 1, 16, 8, 1), efficientnet.MBConvConfig(6, 5, 2, 8, 16, 2)]
    model = efficientnet.EfficientNet(rows, 0.2, num_classes=10)
    classifier("efficientnet_v1", model, ["features.0.0.weight", "features.2.1.block.2.fc2.bias", "classifier.1.bias"])


@fixture
def efficientnet_v2():
    rows = [efficientnet.FusedMBConvConfig(1, 3, 1, 8, 8, 2), efficientnet.FusedMBConvConfig(4, 3, 2, 8, 16, 2),
            efficientnet.MBConvConfig(4, 3, 2, 16, 24, 1)]
    norm = lambda channels: nn.BatchNorm2d(channels, eps=1e-3)
    model = efficientnet.EfficientNet(rows, 0.2, num_classes=10, norm_layer=norm, last_channel=40)
    classifier("efficientnet_v2", model, ["features.1.0.block.0.0.weight", "features.3.0.block.2.fc2.bias", "classifier.1.bias"])


@fixture
def densenet_small():
    model = densenet.DenseNet(8, (2, 11, 2), 16, bn_size=2, num_classes=10)
    classifier("densenet_small", model, ["features.norm0.weight", "features.denseblock2.denselayer11.conv2.weight", "features.transition1.norm.bias"])


@fixture
def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    model = ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 2), CNBlockConfig(24, None, 1)], num_classes=10, stochastic_depth_prob=0.1)
    classifier("convnext", model, ["features.0.0.weight", "features.3.1.layer_scale", "classifier.2.bias"])


@fixture
def regnet_y():
    params = regnet.BlockParams.from_init_params(depth=5, w_0=16, w_a=12.5, w_m=2.1, group_width=8, se_ratio=0.25)
    model = regnet.RegNet(params, num_classes=10, stem_width=8)
    classifier("regnet_y", model, ["stem.0.weight", "trunk_output.block2.block2-1.f.se.fc1.bias", "fc.bias"])


@fixture
def regnet_x():
    params = regnet.BlockParams.from_init_params(depth=4, w_0=24, w_a=24.48, w_m=2.54, group_width=16)
    model = regnet.RegNet(params, num_classes=10)
    classifier("regnet_x", model, ["stem.1.weight", "trunk_output.block1.block1-0.proj.1.bias", "fc.bias"])


@fixture
def vit():
    model = tv.VisionTransformer(16, 4, 2, 4, 32, 48, num_classes=10, representation_size=20)
    classifier("vit", model, ["class_token", "encoder.layers.encoder_layer_1.self_attention.in_proj_bias", "encoder.pos_embedding"], size=16)


@fixture
def deit():
    from timm.models.deit import VisionTransformerDistilled
    model = VisionTransformerDistilled(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, num_classes=10, init_values=0.1)
    classifier("deit", model, ["dist_token", "blocks.1.ls2.gamma", "head_dist.weight"], size=16, reference=TIMM)


@fixture
def timm_vit():
    model = timm.models.VisionTransformer(img_size=16, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=10, global_pool="avg", qkv_bias=False)
    classifier("timm_vit", model, ["cls_token", "blocks.0.attn.proj.bias", "fc_norm.weight"], size=16, reference=TIMM)


@fixture
def swin():
    model = swin_transformer.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [3, 3], num_classes=10)
    classifier("swin", model, ["features.0.0.weight", "features.1.1.attn.relative_position_bias_table", "head.bias"])


@fixture
def swin_v2():
    model = swin_transformer.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10, block=swin_transformer.SwinTransformerBlockV2,
                                             downsample_layer=swin_transformer.PatchMergingV2)
    classifier("swin_v2", model, ["features.1.1.attn.logit_scale", "features.3.0.attn.cpb_mlp.0.bias", "features.2.norm.weight"], size=36)


def dinov2_tokens(name, size, **changes):
    config = transformers.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=12, patch_size=4, **changes)
    x = image(2, 3, *size)
    grads = ["embeddings.cls_token", "embeddings.position_embeddings", "encoder.layer.1.layer_scale1.lambda1"]

    def run(m):
        tokens = m(x).last_hidden_state
        return {"tokens": tokens, "loss": tokens[..., :4].square().mean()}  # that of all features is nearly constant after a norm
    write_pretrained(name, transformers.Dinov2Model(config), TRANSFORMERS, {"x": x}, run, grads)


@fixture
def dinov2():
    dinov2_tokens("dinov2", (12, 12))


@fixture
def dinov2_swiglu():
    """With images of another size than that of the position embeddings."""
    dinov2_tokens("dinov2_swiglu", (16, 24), use_swiglu_ffn=True)


TEXT = dict(vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=12)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8)
IDS = torch.tensor([[38, 5, 7, 9, 39, 39, 39], [38, 11, 2, 3, 30, 4, 39], [38, 1, 39, 39, 39, 39, 39]])


@fixture
def clip():
    config = transformers.CLIPConfig(text_config=TEXT | dict(bos_token_id=38, eos_token_id=39), vision_config=VISION, projection_dim=20)
    x = image(3, 3, 16, 16)

    def run(m):
        out = m(input_ids=IDS, pixel_values=x, return_loss=True)
        return {"logits": out.logits_per_image, "text": m.text_model(input_ids=IDS).last_hidden_state, "loss": out.loss}
    grads = ["logit_scale", "text_model.embeddings.position_embedding.weight", "vision_model.pre_layrnorm.weight"]
    write_pretrained("clip", transformers.CLIPModel(config), TRANSFORMERS, {"x": x, "ids": IDS.int()}, run, grads)


@fixture
def siglip():
    config = transformers.SiglipConfig(text_config=TEXT | dict(projection_size=32), vision_config=VISION)
    x = image(3, 3, 16, 16)

    def run(m):
        out = m(input_ids=IDS, pixel_values=x, return_loss=True)
        return {"logits": out.logits_per_image, "loss": out.loss}
    grads = ["logit_bias", "text_model.head.bias", "vision_model.head.probe"]
    write_pretrained("siglip", transformers.SiglipModel(config), TRANSFORMERS, {"x": x, "ids": IDS.int()}, run, grads)


class DoubleConv(nn.Module):
    def __init__(self, start, middle, end):
        super().__init__()
        layers = [nn.Conv2d(start, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU()]
        layers += [nn.Conv2d(middle, end, 3, padding=1, bias=False), nn.BatchNorm2d(end), nn.ReLU()]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    """The layout and names of Pytorch-UNet."""
    def __init__(self, channels, classes, width, bilinear):
        super().__init__()
        factor = 2 if bilinear else 1
        self.bilinear = bilinear
        self.inc = DoubleConv(channels, width, width)
        for level, (start, end) in enumerate([(1, 2), (2, 4), (4, 8), (8, 16 // factor)], 1):
            down = nn.Module()
            down.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(start * width, end * width, end * width))
            setattr(self, f"down{level}", down)
        for level, (start, end) in enumerate([(16, 8 // factor), (8, 4 // factor), (4, 2 // factor), (2, 1)], 1):
            up = nn.Module()
            start, end = start * width, end * width
            if not bilinear:
                up.up = nn.ConvTranspose2d(start, start // 2, 2, stride=2)
            up.conv = DoubleConv(start, start // 2 if bilinear else end, end)
            setattr(self, f"up{level}", up)
        self.outc = nn.Module()
        self.outc.conv = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = [self.inc(x)]
        for level in range(1, 5):
            kept.append(getattr(self, f"down{level}").maxpool_conv(kept[-1]))
        x = kept.pop()
        for level in range(1, 5):
            up, beside = getattr(self, f"up{level}"), kept.pop()
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True) if self.bilinear else up.up(x)
            dy, dx = beside.shape[2] - x.shape[2], beside.shape[3] - x.shape[3]
            x = nn.functional.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = up.conv(torch.cat([beside, x], 1))
        return self.outc.conv(x)


def unet_pixels(name, bilinear, size):
    x = image(2, 2, *size)
    grads = ["inc.double_conv.0.weight", "up1.conv.double_conv.4.weight", "outc.conv.weight"]
    write(name, UNet(2, 3, 4, bilinear), "Pytorch-UNet's layout, written in PyTorch", {}, {"x": x}, lambda m: {"logits": m(x)}, grads)


@fixture
def unet():
    unet_pixels("unet", False, (16, 32))


@fixture
def unet_bilinear():
    unet_pixels("unet_bilinear", True, (19, 34))


@fixture
def detr():
    config = transformers.DetrConfig(
        use_timm_backbone=True, backbone="resnet18", use_pretrained_backbone=False, backbone_config=None, d_model=24, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=40, num_queries=6, num_labels=5)
    x = image(2, 3, 64, 96)

    def run(m):
        out = m(x)
        return {"logits": out.logits, "boxes": out.pred_boxes, "loss": out.logits.square().mean() + out.pred_boxes.square().mean()}
    grads = ["model.query_position_embeddings.weight", "model.encoder.layers.0.self_attn.v_proj.weight", "bbox_predictor.layers.2.weight"]
    write_pretrained("detr", transformers.DetrForObjectDetection(config), TRANSFORMERS, {"x": x}, run, grads)


@fixture
def sam():
    config = transformers.SamVisionConfig(hidden_size=24, output_channels=12, num_hidden_layers=2, num_attention_heads=3, image_size=32, patch_size=4,
                                          window_size=3, global_attn_indexes=[1], mlp_dim=32)
    x = image(2, 3, 32, 32)

    def run(m):
        out = m(x).last_hidden_state
        return {"features": out, "loss": out[:, :4].square().mean()}
    grads = ["vision_encoder.layers.0.attn.rel_pos_h", "vision_encoder.layers.1.attn.rel_pos_w", "vision_encoder.pos_embed"]
    from transformers.models.sam.modeling_sam import SamVisionModel
    write_pretrained("sam", SamVisionModel(config), TRANSFORMERS, {"x": x}, run, grads)


@fixture
def yolov8():
    from ultralytics.nn.tasks import DetectionModel
    model = DetectionModel("yolov8n.yaml", ch=3, nc=4, verbose=False).float()
    model.model[9].cv1.act = nn.SiLU()  # as the published weights were trained; newer releases have none there
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    write_yolo(model)


def write_yolo(model):
    import ultralytics
    x = image(1, 3, 64, 96).sigmoid()
    dfl = model.model[22].dfl.conv.weight.detach().clone()
    import formula
    formula.fill(model)
    with torch.no_grad():
        model.model[22].dfl.conv.weight.copy_(dfl)
    state = model.state_dict()

    def run(m):
        out = m(x)
        out = out[0] if isinstance(out, tuple) else out
        boxes, scores = out[:, :4], out[:, 4:]
        return {"boxes": boxes, "scores": scores, "loss": (boxes / 100).square().mean() + scores.square().mean()}
    grads = ["model.0.conv.weight", "model.9.cv1.bn.weight", "model.22.cv3.1.2.bias"]
    write("yolov8", model, f"ultralytics {ultralytics.__version__} DetectionModel", {}, {"x": x}, run, grads, state, kept=["model.22.dfl.conv.weight"])


@fixture
def nms():
    corners = torch.rand(60, 4, generator=torch.Generator().manual_seed(3)) * 40
    boxes = torch.cat([corners[:, :2], corners[:, :2] + 5 + corners[:, 2:]], 1)
    scores = torch.rand(60, generator=torch.Generator().manual_seed(4))
    classes = torch.arange(60) % 3
    kept = torchvision.ops.nms(boxes, scores, 0.4)
    by_class = torchvision.ops.batched_nms(boxes, scores, classes, 0.4)
    tensors = {"input.boxes": boxes, "input.scores": scores, "output.kept": kept.float(), "output.by_class": by_class.float(),
               "output.iou": torchvision.ops.box_iou(boxes[:6], boxes[6:12]), "output.loss": torch.zeros(())}
    common.save("nms", tensors, {"reference": f"{TORCHVISION} ops", "config": "{}"})


@fixture
def preprocess():
    """Resize, crop and normalize as the presets of torchvision's weights do."""
    from torchvision.transforms._presets import ImageClassification
    from torchvision.transforms.functional import InterpolationMode
    pixels = (torch.rand(3, 37, 53, generator=torch.Generator().manual_seed(5)) * 255).to(torch.uint8)
    tensors = {"input.pixels": pixels.float(), "output.loss": torch.zeros(())}
    for name, mode in (("bilinear", InterpolationMode.BILINEAR), ("bicubic", InterpolationMode.BICUBIC)):
        transform = ImageClassification(crop_size=20, resize_size=24, interpolation=mode)
        tensors[f"output.{name}"] = transform(pixels.float() / 255)
    common.save("preprocess", tensors, {"reference": f"{TORCHVISION} ImageClassification", "config": "{}"})


@fixture
def parameters():
    """The numbers of parameters of every preset."""
    counts = {}
    rule = regnet.BlockParams.from_init_params

    def widths(**kwargs):
        with torch.device("cpu"):
            return rule(**kwargs)
    regnet.BlockParams.from_init_params = widths
    names = [name for name in tv.list_models(module=tv) if not name.startswith(("alexnet", "googlenet", "inception", "mnasnet", "shufflenet", "squeezenet", "maxvit"))]
    with torch.device("meta"):
        for name in names:
            counts[name] = sum(p.numel() for p in tv.get_model(name).parameters())
        for name in ["vit_tiny_patch16_224", "vit_small_patch32_224", "vit_base_patch8_224", "deit_tiny_distilled_patch16_224", "deit_base_patch16_224"]:
            counts[f"timm.{name}"] = sum(p.numel() for p in timm.create_model(name).parameters())
    path = common.FIXTURES / "vision_parameters.json"
    path.write_text(json.dumps(counts, indent=1) + "\n")
    print(f"{path.name}: {len(counts)} models")


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()

//! Networks for pictures: logits, a loss and gradients; the numbers of parameters of the presets.

use std::{collections::BTreeMap, fs, path::Path};

use models::vision::{
    Clip, ClipConfig, ConvNeXt, ConvNeXtConfig, Corners, DenseNet, DenseNetConfig, Detr, DetrConfig, Dinov2,
    Dinov2Config, EfficientNet, EfficientNetConfig, EfficientNetStage, MobileNetV2, MobileNetV2Config,
    MobileNetV2Stage, MobileNetV3, MobileNetV3Block, MobileNetV3Config, Preprocess, RegNet, RegNetConfig,
    ResNet, ResNetBlock, ResNetConfig, SamVision, SamVisionConfig, Siglip, SiglipConfig, SwinConfig,
    SwinTransformer, TimmVit, TimmVitConfig, UNet, UNetConfig, Vgg, VggConfig, VggStep, VisionTransformer,
    VisionTransformerConfig, VitPool, YoloV8, YoloV8Config, batched_nms, box_iou, nms,
};
use nn::{Module, skip_init};
use tensor_core::{Generator, Result, Tensor};

use crate::{
    devices,
    fixture::{Fixture, Run, classifies, floats, parameters},
};

#[test]
fn resnet_basic() {
    let config = ResNetConfig { layers: [2, 1, 1, 1], num_classes: 10, ..ResNetConfig::resnet18() };
    classifies("resnet_basic", |weights| ResNet::new(&config, weights));
}

#[test]
fn resnet_bottleneck() {
    let config = ResNetConfig {
        num_classes: 10,
        replace_stride_with_dilation: [false, false, true],
        ..ResNetConfig::new(ResNetBlock::Bottleneck, [1, 1, 2, 1], 4, 8)
    };
    classifies("resnet_bottleneck", |weights| ResNet::new(&config, weights));
}

#[test]
fn vgg_bn() {
    use VggStep::{Conv, Pool};
    let features = vec![Conv(6), Pool, Conv(8), Conv(12), Pool];
    let config = VggConfig { features, batch_norm: true, hidden: 16, num_classes: 10, dropout: 0.5 };
    classifies("vgg_bn", |weights| Vgg::new(&config, weights));
}

#[test]
fn mobilenet_v2() {
    let stage =
        |expand_ratio, channels, blocks, stride| MobileNetV2Stage { expand_ratio, channels, blocks, stride };
    let config = MobileNetV2Config {
        inverted_residual_setting: vec![stage(1, 16, 1, 1), stage(6, 24, 2, 2), stage(4, 32, 1, 2)],
        width_mult: 0.5,
        num_classes: 10,
        ..MobileNetV2Config::mobilenet_v2()
    };
    classifies("mobilenet_v2", |weights| MobileNetV2::new(&config, weights));
}

#[test]
fn mobilenet_v3() {
    let block = |[input_channels, kernel, expanded_channels, out_channels, stride]: [usize; 5],
                 use_se,
                 use_hs| {
        MobileNetV3Block { input_channels, kernel, expanded_channels, out_channels, use_se, use_hs, stride }
    };
    let blocks = vec![
        block([16, 3, 16, 16, 2], true, false),
        block([16, 5, 40, 24, 1], false, true),
        block([24, 5, 64, 24, 1], true, true),
    ];
    let config = MobileNetV3Config {
        inverted_residual_setting: blocks,
        last_channel: 32,
        num_classes: 10,
        dropout: 0.2,
    };
    classifies("mobilenet_v3", |weights| MobileNetV3::new(&config, weights));
}

fn stage(fused: bool, row: [usize; 6]) -> EfficientNetStage {
    let [expand_ratio, kernel, stride, input_channels, out_channels, num_layers] = row;
    EfficientNetStage { fused, expand_ratio, kernel, stride, input_channels, out_channels, num_layers }
}

#[test]
fn efficientnet_v1() {
    let stages = vec![stage(false, [1, 3, 1, 16, 8, 1]), stage(false, [6, 5, 2, 8, 16, 2])];
    let config = EfficientNetConfig {
        inverted_residual_setting: stages,
        last_channel: 64,
        num_classes: 10,
        ..EfficientNetConfig::efficientnet_b0()
    };
    classifies("efficientnet_v1", |weights| EfficientNet::new(&config, weights));
}

#[test]
fn efficientnet_v2() {
    let stages = vec![
        stage(true, [1, 3, 1, 8, 8, 2]),
        stage(true, [4, 3, 2, 8, 16, 2]),
        stage(false, [4, 3, 2, 16, 24, 1]),
    ];
    let config = EfficientNetConfig {
        inverted_residual_setting: stages,
        last_channel: 40,
        num_classes: 10,
        ..EfficientNetConfig::efficientnet_v2_s()
    };
    classifies("efficientnet_v2", |weights| EfficientNet::new(&config, weights));
}

#[test]
fn densenet() {
    let config = DenseNetConfig {
        growth_rate: 8,
        block_config: vec![2, 11, 2],
        num_init_features: 16,
        bn_size: 2,
        num_classes: 10,
        ..DenseNetConfig::densenet121()
    };
    classifies("densenet_small", |weights| DenseNet::new(&config, weights));
}

#[test]
fn convnext() {
    let config = ConvNeXtConfig {
        channels: vec![8, 16, 24],
        num_layers: vec![1, 2, 1],
        num_classes: 10,
        ..ConvNeXtConfig::convnext_tiny()
    };
    classifies("convnext", |weights| ConvNeXt::new(&config, weights));
}

#[test]
fn regnet_y() {
    let config = RegNetConfig {
        depth: 5,
        w_0: 16,
        w_a: 12.5,
        w_m: 2.1,
        group_width: 8,
        stem_width: 8,
        num_classes: 10,
        ..RegNetConfig::regnet_y_400mf()
    };
    classifies("regnet_y", |weights| RegNet::new(&config, weights));
}

#[test]
fn regnet_x() {
    let config = RegNetConfig { depth: 4, num_classes: 10, ..RegNetConfig::regnet_x_400mf() };
    classifies("regnet_x", |weights| RegNet::new(&config, weights));
}

#[test]
fn vit() {
    let config = VisionTransformerConfig {
        image_size: 16,
        patch_size: 4,
        num_layers: 2,
        num_heads: 4,
        hidden_dim: 32,
        mlp_dim: 48,
        num_classes: 10,
        representation_size: Some(20),
        ..VisionTransformerConfig::vit_b_16()
    };
    classifies("vit", |weights| VisionTransformer::new(&config, weights));
}

fn small_timm() -> TimmVitConfig {
    TimmVitConfig {
        img_size: 16,
        embed_dim: 32,
        depth: 2,
        num_classes: 10,
        ..TimmVitConfig::vit_tiny_patch16_224()
    }
}

#[test]
fn deit() {
    let config = TimmVitConfig {
        patch_size: 4,
        num_heads: 4,
        init_values: Some(0.1),
        distilled: true,
        qkv_bias: true,
        ..small_timm()
    };
    classifies("deit", |weights| TimmVit::new(&config, weights));
}

#[test]
fn timm_vit() {
    let config = TimmVitConfig {
        patch_size: 8,
        num_heads: 2,
        qkv_bias: false,
        global_pool: VitPool::Avg,
        ..small_timm()
    };
    classifies("timm_vit", |weights| TimmVit::new(&config, weights));
}

#[test]
fn swin() {
    let config = SwinConfig {
        embed_dim: 16,
        depths: vec![2, 2],
        num_heads: vec![2, 4],
        window_size: 3,
        num_classes: 10,
        ..SwinConfig::swin_t()
    };
    classifies("swin", |weights| SwinTransformer::new(&config, weights));
}

#[test]
fn swin_v2() {
    let config = SwinConfig {
        embed_dim: 16,
        depths: vec![2, 2],
        num_heads: vec![2, 4],
        window_size: 4,
        num_classes: 10,
        ..SwinConfig::swin_v2_t()
    };
    classifies("swin_v2", |weights| SwinTransformer::new(&config, weights));
}

fn dinov2_tokens(name: &str) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let config: Dinov2Config = models::read_config(fixture.folder())?;
        let model = Dinov2::new(&config, fixture.source(device))?;
        model.eval();
        let tokens = model.forward(&fixture.input("x", device))?;
        let loss = tokens.narrow(-1, 0, 4)?.square().mean();
        Ok(Run { outputs: vec![("tokens", tokens)], loss, parameters: parameters(&model) })
    });
}

#[test]
fn dinov2() {
    dinov2_tokens("dinov2");
}

/// With images of another size than that of the position embeddings.
#[test]
fn dinov2_swiglu() {
    dinov2_tokens("dinov2_swiglu");
}

#[test]
fn clip() {
    Fixture::open("clip").check(1e-4, |fixture, device| {
        let config: ClipConfig = models::read_config(fixture.folder())?;
        let model = Clip::new(&config, fixture.source(device))?;
        let (x, ids) = (fixture.input("x", device), fixture.input("ids", device));
        let outputs = vec![("logits", model.forward(&x, &ids)?), ("text", model.text_model.tokens(&ids)?)];
        Ok(Run { outputs, loss: model.contrastive_loss(&x, &ids)?, parameters: parameters(&model) })
    });
}

#[test]
fn siglip() {
    Fixture::open("siglip").check(1e-4, |fixture, device| {
        let config: SiglipConfig = models::read_config(fixture.folder())?;
        let model = Siglip::new(&config, fixture.source(device))?;
        let (x, ids) = (fixture.input("x", device), fixture.input("ids", device));
        let outputs = vec![("logits", model.forward(&x, &ids)?)];
        Ok(Run { outputs, loss: model.sigmoid_loss(&x, &ids)?, parameters: parameters(&model) })
    });
}

fn unet_pixels(name: &str, bilinear: bool) {
    let config = UNetConfig { width: 4, bilinear, ..UNetConfig::unet(2, 3) };
    classifies(name, |weights| UNet::new(&config, weights));
}

#[test]
fn unet() {
    unet_pixels("unet", false);
}

#[test]
fn unet_bilinear() {
    unet_pixels("unet_bilinear", true);
}

#[test]
fn detr() {
    let config = DetrConfig {
        backbone: ResNetConfig::resnet18(),
        d_model: 24,
        encoder_layers: 2,
        encoder_attention_heads: 3,
        encoder_ffn_dim: 32,
        decoder_layers: 2,
        decoder_attention_heads: 4,
        decoder_ffn_dim: 40,
        num_queries: 6,
        num_labels: 5,
    };
    Fixture::open("detr").check(1e-4, |fixture, device| {
        let model = Detr::new(&config, fixture.source(device))?;
        let found = model.forward(&fixture.input("x", device))?;
        let loss = found.logits.square().mean().add(&found.boxes.square().mean())?;
        let outputs = vec![("logits", found.logits), ("boxes", found.boxes)];
        Ok(Run { outputs, loss, parameters: parameters(&model) })
    });
}

#[test]
fn sam() {
    Fixture::open("sam").check(1e-4, |fixture, device| {
        let config: SamVisionConfig = models::read_config(fixture.folder())?;
        let model = SamVision::new(&config, fixture.source(device))?;
        let features = model.forward(&fixture.input("x", device))?;
        let loss = features.narrow(1, 0, 4)?.square().mean();
        Ok(Run { outputs: vec![("features", features)], loss, parameters: parameters(&model) })
    });
}

#[test]
fn yolov8() {
    let config = YoloV8Config { classes: 4, ..YoloV8Config::yolov8n() };
    Fixture::open("yolov8").check(1e-4, |fixture, device| {
        let model = YoloV8::new(&config, fixture.source(device))?;
        model.eval();
        let out = model.forward(&fixture.input("x", device))?;
        let (boxes, scores) = (out.narrow(1, 0, 4)?, out.narrow(1, 4, 4)?);
        let loss = boxes.div_scalar(100.0).square().mean().add(&scores.square().mean())?;
        Ok(Run { outputs: vec![("boxes", boxes), ("scores", scores)], loss, parameters: parameters(&model) })
    });
}

/// Two cells of one object, one of another class, and one below the threshold.
#[test]
fn yolov8_keeps_the_best_of_boxes_that_overlap() -> Result<()> {
    let device = backend_cpu::cpu();
    let config = YoloV8Config { classes: 2, ..YoloV8Config::yolov8n() };
    let model = YoloV8::new(&config, &Generator::seed(0, &device))?;
    let cells: [[f32; 6]; 4] = [
        [10.0, 10.0, 8.0, 8.0, 0.6, 0.1],
        [11.0, 10.0, 8.0, 8.0, 0.9, 0.1],
        [10.0, 10.0, 8.0, 8.0, 0.1, 0.7],
        [40.0, 40.0, 8.0, 8.0, 0.2, 0.1],
    ];
    let predictions = Tensor::from_vec(cells.concat(), [1, 4, 6], &device)?.transpose(1, 2)?;
    let found = model.detections(&predictions, 0.25, 0.5, 10)?;
    let expected = [(0, 0.9, [7.0, 6.0, 15.0, 14.0]), (1, 0.7, [6.0, 6.0, 14.0, 14.0])];
    let found: Vec<_> = found[0].iter().map(|object| (object.class, object.score, object.corners)).collect();
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn suppression_is_that_of_torchvision() -> Result<()> {
    let (fixture, device) = (Fixture::open("nms"), backend_cpu::cpu());
    let boxes: Vec<Corners> = fixture
        .input("boxes", &device)
        .to_vec::<f32>()?
        .chunks_exact(4)
        .map(|corners| [corners[0], corners[1], corners[2], corners[3]])
        .collect();
    let scores = fixture.input("scores", &device).to_vec::<f32>()?;
    let classes: Vec<usize> = (0..60).map(|index| index % 3).collect();
    let as_numbers = |kept: Vec<usize>| kept.into_iter().map(|index| index as f64).collect::<Vec<_>>();
    assert_eq!(as_numbers(nms(&boxes, &scores, 0.4)?), fixture.output("kept"));
    assert_eq!(as_numbers(batched_nms(&boxes, &scores, &classes, 0.4)?), fixture.output("by_class"));
    let overlaps: Vec<f64> =
        boxes[..6].iter().flat_map(|a| boxes[6..12].iter().map(|b| f64::from(box_iou(*a, *b)))).collect();
    taper_testing::assert_close(&overlaps, &fixture.output("iou"), (1e-5, 1e-6), "box_iou");
    assert!(nms(&boxes, &scores[1..], 0.4).is_err());
    Ok(())
}

#[test]
fn pictures_are_prepared_as_by_torchvision() -> Result<()> {
    let fixture = Fixture::open("preprocess");
    for device in devices() {
        let pixels = fixture.input("pixels", &device);
        for (name, bicubic) in [("bilinear", false), ("bicubic", true)] {
            let recipe = Preprocess { resize: 24, crop: 20, bicubic, ..Preprocess::imagenet() };
            let found = recipe.apply(&pixels.div_scalar(255.0))?;
            assert_eq!(found.dims(), [1, 3, 20, 20]);
            taper_testing::assert_close(
                &floats(&found),
                &fixture.output(name),
                (0.0, 2e-4),
                &format!("{name} on {device}"),
            );
        }
    }
    assert!(
        Preprocess { crop: 30, ..Preprocess::imagenet() }
            .apply(&fixture.input("pixels", &backend_cpu::cpu()))
            .is_ok()
    );
    Ok(())
}

/// The presets of a model: torchvision's or timm's name, and the number of parameters.
macro_rules! counts {
    ($model:ident $config:ident $prefix:literal: $($name:ident)*) => {
        [$((
            concat!($prefix, stringify!($name)),
            (|rng: &Generator| $model::new(&$config::$name(), rng).map(|m| m.num_parameters())) as Count,
        )),*]
    };
}
type Count = fn(&Generator) -> Result<usize>;

/// Presets up to 60 million parameters; larger ones differ from these by numbers in the same table.
#[test]
fn presets_have_the_parameters_of_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision_parameters.json");
    let known: BTreeMap<String, usize> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let rng = Generator::seed(0, &backend_cpu::cpu());
    let all: Vec<(&str, Count)> = [
        &counts!(ResNet ResNetConfig "": resnet18 resnet34 resnet50 resnet101 resnext50_32x4d)[..],
        &counts!(MobileNetV2 MobileNetV2Config "": mobilenet_v2),
        &counts!(MobileNetV3 MobileNetV3Config "": mobilenet_v3_large mobilenet_v3_small),
        &counts!(EfficientNet EfficientNetConfig "": efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
            efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_v2_s efficientnet_v2_m),
        &counts!(DenseNet DenseNetConfig "": densenet121 densenet161 densenet169 densenet201),
        &counts!(ConvNeXt ConvNeXtConfig "": convnext_tiny convnext_small),
        &counts!(RegNet RegNetConfig "": regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf
            regnet_x_16gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf),
        &counts!(SwinTransformer SwinConfig "": swin_t swin_s swin_v2_t swin_v2_s),
        &counts!(TimmVit TimmVitConfig "timm.": vit_tiny_patch16_224 vit_small_patch32_224
            deit_tiny_distilled_patch16_224),
    ]
    .concat();
    for (name, count) in all {
        assert_eq!(skip_init(|| count(&rng)).unwrap(), known[name], "{name}");
    }
}

#[test]
fn bad_configurations_are_errors() {
    let rng = Generator::seed(0, &backend_cpu::cpu());
    let message = |found: Result<()>| found.unwrap_err().to_string();
    let config = ResNetConfig { groups: 2, ..ResNetConfig::resnet18() };
    assert!(message(ResNet::new(&config, &rng).map(drop)).contains("basic blocks have one group"));
    let config = VisionTransformerConfig { patch_size: 15, ..VisionTransformerConfig::vit_b_16() };
    assert!(
        message(VisionTransformer::new(&config, &rng).map(drop)).contains("15 do not divide an image of 224")
    );
    let config = SwinConfig { num_heads: vec![3, 5, 12, 24], ..SwinConfig::swin_t() };
    assert!(
        message(SwinTransformer::new(&config, &rng).map(drop))
            .contains("5 heads do not divide a width of 192")
    );
    let config = TimmVitConfig { num_heads: 5, ..small_timm() };
    assert!(message(TimmVit::new(&config, &rng).map(drop)).contains("5 heads do not divide a width of 32"));
    let config = RegNetConfig { w_0: 12, ..RegNetConfig::regnet_x_400mf() };
    assert!(message(RegNet::new(&config, &rng).map(drop)).contains("w_0 is a multiple of 8"));
}

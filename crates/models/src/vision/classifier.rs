//! [`ImageClassifier`]: a network, its preparation of pictures and its labels, by the name of the
//! architecture. To add an architecture, add its presets to the table [`ARCHITECTURES`].

use std::path::Path;

use nn::Layer;
use serde::Deserialize;
use tensor_core::{Device, Error, Result, Tensor, file::file_error};
use weights::WeightFile;

use super::{
    ConvNeXt, ConvNeXtConfig, DenseNet, DenseNetConfig, EfficientNet, EfficientNetConfig, MobileNetV2,
    MobileNetV2Config, MobileNetV3, MobileNetV3Config, Preprocess, RegNet, RegNetConfig, ResNet,
    ResNetConfig, SwinConfig, SwinTransformer, TimmVit, TimmVitConfig, Vgg, VggConfig, VisionTransformer,
    VisionTransformerConfig, VitPool,
};
use crate::{WeightSource, read_config, read_labels};

const OP: &str = "ImageClassifier";

/// The network of a preset with this number of classes and the parameters of a source.
type Build = fn(usize, WeightSource) -> Result<Box<dyn Layer>>;

/// An architecture by name.
struct Architecture {
    name: &'static str,
    /// The last layer, whose rows are the classes.
    classifier: &'static str,
    build: Build,
}

/// A table of architectures: the types of network and configuration, the last layer, the presets.
macro_rules! architectures {
    ($($model:ident $config:ident $classifier:literal: $($name:ident)*;)*) => {
        &[$($(Architecture {
            name: stringify!($name),
            classifier: $classifier,
            build: |num_classes, weights| {
                let config = $config { num_classes, ..$config::$name() };
                Ok(Box::new($model::new(&config, weights)?))
            },
        }),*),*]
    };
}

const ARCHITECTURES: &[Architecture] = architectures! {
    ResNet ResNetConfig "fc": resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d
        resnext101_64x4d wide_resnet50_2 wide_resnet101_2;
    Vgg VggConfig "classifier.6": vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn;
    MobileNetV2 MobileNetV2Config "classifier.1": mobilenet_v2;
    MobileNetV3 MobileNetV3Config "classifier.3": mobilenet_v3_large mobilenet_v3_small;
    EfficientNet EfficientNetConfig "classifier.1": efficientnet_b0 efficientnet_b1 efficientnet_b2
        efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_s
        efficientnet_v2_m efficientnet_v2_l;
    DenseNet DenseNetConfig "classifier": densenet121 densenet161 densenet169 densenet201;
    ConvNeXt ConvNeXtConfig "classifier.2": convnext_tiny convnext_small convnext_base convnext_large;
    RegNet RegNetConfig "fc": regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf
        regnet_y_16gf regnet_y_32gf regnet_y_128gf regnet_x_400mf regnet_x_800mf regnet_x_1_6gf
        regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf;
    VisionTransformer VisionTransformerConfig "heads.head": vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14;
    SwinTransformer SwinConfig "head": swin_t swin_s swin_b swin_v2_t swin_v2_s swin_v2_b;
};

type TimmPreset = fn() -> TimmVitConfig;

/// timm's vision transformers, which `model_args` of a configuration may change.
macro_rules! timm {
    ($($name:ident)*) => { &[$((stringify!($name), TimmVitConfig::$name)),*] };
}
const TIMM: &[(&str, TimmPreset)] = timm! {
    vit_tiny_patch16_224 vit_small_patch32_224 vit_small_patch16_224 vit_base_patch32_224 vit_base_patch16_224
    vit_base_patch8_224 vit_large_patch32_224 vit_large_patch16_224 deit_tiny_patch16_224
    deit_small_patch16_224 deit_base_patch16_224 deit_tiny_distilled_patch16_224
    deit_small_distilled_patch16_224 deit_base_distilled_patch16_224
};

/// The fields of timm's `config.json` that are read.
#[derive(Deserialize)]
struct TimmFile {
    architecture: String,
    #[serde(default)]
    model_args: TimmArguments,
    #[serde(default)]
    pretrained_cfg: Pretrained,
}

/// Changes of a preset of timm's vision transformer.
#[derive(Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TimmArguments {
    img_size: Option<usize>,
    patch_size: Option<usize>,
    embed_dim: Option<usize>,
    depth: Option<usize>,
    num_heads: Option<usize>,
    mlp_ratio: Option<f64>,
    qkv_bias: Option<bool>,
    init_values: Option<f64>,
    global_pool: Option<TimmPool>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimmPool {
    Token,
    Avg,
}

impl TimmArguments {
    fn change(&self, config: &mut TimmVitConfig) {
        fn set<T: Copy>(field: &mut T, value: Option<T>) {
            *field = value.unwrap_or(*field);
        }
        set(&mut config.img_size, self.img_size);
        set(&mut config.patch_size, self.patch_size);
        set(&mut config.embed_dim, self.embed_dim);
        set(&mut config.depth, self.depth);
        set(&mut config.num_heads, self.num_heads);
        set(&mut config.mlp_ratio, self.mlp_ratio);
        set(&mut config.qkv_bias, self.qkv_bias);
        config.init_values = self.init_values.or(config.init_values);
        let pool = self.global_pool.map(|pool| match pool {
            TimmPool::Token => VitPool::Token,
            TimmPool::Avg => VitPool::Avg,
        });
        set(&mut config.global_pool, pool);
    }
}

/// The pictures that a network of timm was trained with.
#[derive(Deserialize)]
#[serde(default)]
struct Pretrained {
    input_size: [usize; 3],
    crop_pct: f64,
    interpolation: String,
    mean: [f64; 3],
    std: [f64; 3],
}

impl Default for Pretrained {
    fn default() -> Pretrained {
        let Preprocess { mean, std, .. } = Preprocess::imagenet();
        Pretrained { input_size: [3, 224, 224], crop_pct: 0.875, interpolation: "bilinear".into(), mean, std }
    }
}

impl Pretrained {
    /// timm's `create_transform` without training.
    #[track_caller]
    fn preprocess(&self, path: &Path) -> Result<Preprocess> {
        let [_, height, width] = self.input_size;
        let resize = (height as f64 / self.crop_pct).floor();
        if height != width || !(1.0..=65535.0).contains(&resize) {
            let message =
                format!("has pictures of {height} x {width} and crop_pct {}: give squares", self.crop_pct);
            return Err(file_error(path, message));
        }
        let bicubic = match self.interpolation.as_str() {
            "bicubic" => true,
            "bilinear" => false,
            other => {
                let message = format!("has interpolation \"{other}\"; known are bilinear and bicubic");
                return Err(file_error(path, message));
            }
        };
        Ok(Preprocess { resize: resize as usize, crop: height, bicubic, mean: self.mean, std: self.std })
    }
}

/// A class that [`ImageClassifier::classify`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The number of the class.
    pub class: usize,
    /// Its label, or its number as text if the labels are not known.
    pub label: String,
    /// Its probability.
    pub probability: f32,
}

/// A network that classifies pictures, with the preparation of its pictures and the labels of its classes.
///
/// ```no_run
/// use models::vision::ImageClassifier;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let classifier = ImageClassifier::open("resnet50", "resnet50-11ad3fa6.pth", &device)?;
/// let picture = Tensor::zeros([3, 480, 640], &device)?; // values between 0 and 1
/// for found in classifier.classify(&picture, 5)? {
///     println!("{:.3} {}", found.probability, found.label);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ImageClassifier {
    /// The network, in the mode for evaluation.
    pub network: Box<dyn Layer>,
    /// The preparation of pictures.
    pub preprocess: Preprocess,
    /// The labels of the classes, or nothing if they are not known.
    pub labels: Vec<String>,
}

impl ImageClassifier {
    /// The names of the architectures: torchvision's, and timm's vision transformers.
    pub fn architectures() -> impl Iterator<Item = &'static str> {
        ARCHITECTURES.iter().map(|one| one.name).chain(TIMM.iter().map(|(name, _)| *name))
    }

    /// A classifier by the name of its architecture, with weights of torchvision or timm. The number of
    /// classes is the file's. Pictures are prepared by [`Preprocess::imagenet`], or [`Preprocess::half`] for
    /// timm's vision transformers; change the field where the weights need another.
    ///
    /// # Errors
    /// An unknown name, a file that cannot be read, or one whose tensors are not those of the network.
    #[track_caller]
    pub fn open(architecture: &str, path: impl AsRef<Path>, device: &Device) -> Result<ImageClassifier> {
        let is_timm = TIMM.iter().any(|(name, _)| *name == architecture);
        let file = weights::open(path)?;
        let network = network(architecture, &TimmArguments::default(), file, device)?;
        let preprocess = if is_timm { Preprocess::half() } else { Preprocess::imagenet() };
        Ok(ImageClassifier { network, preprocess, labels: Vec::new() })
    }

    /// A classifier from a folder with timm's `config.json` and weights: `architecture` names the network,
    /// `pretrained_cfg` the preparation, and `model_args` changes vision transformers.
    ///
    /// # Errors
    /// A `File` error for a configuration that is not timm's or whose architecture is not known, and those
    /// of [`ImageClassifier::open`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<ImageClassifier> {
        let (path, config_path) = (path.as_ref(), path.as_ref().join("config.json"));
        let config: TimmFile = read_config(path)?;
        let preprocess = config.pretrained_cfg.preprocess(&config_path)?;
        let file = weights::open(path)?;
        let network = match network(&config.architecture, &config.model_args, file, device) {
            Ok(network) => network,
            Err(error) => return Err(file_error(&config_path, error.to_string())),
        };
        Ok(ImageClassifier { network, preprocess, labels: read_labels(path)? })
    }

    /// The most probable classes of a picture `[3, H, W]` of values between 0 and 1, at most `count`.
    ///
    /// # Errors
    /// A picture of another shape, or a value that cannot be computed.
    #[track_caller]
    pub fn classify(&self, picture: &Tensor, count: usize) -> Result<Vec<Class>> {
        let logits = autograd::no_grad(|| self.network.forward(&self.preprocess.apply(picture)?))?;
        let &[1, classes] = logits.dims() else {
            return Err(Error::invalid(OP, format!("logits are [1, classes], not {}", logits.shape())));
        };
        let (values, indices) = logits.softmax(-1)?.topk(count.min(classes), 1, true)?;
        let found = indices.to_vec::<i64>()?.into_iter().zip(values.to_vec::<f32>()?);
        let label = |class: usize| self.labels.get(class).cloned().unwrap_or_else(|| class.to_string());
        Ok(found
            .map(|(class, probability)| Class {
                class: class as usize,
                label: label(class as usize),
                probability,
            })
            .collect())
    }
}

/// The network with this name and the weights of a file.
#[track_caller]
fn network(
    name: &str,
    arguments: &TimmArguments,
    file: WeightFile,
    device: &Device,
) -> Result<Box<dyn Layer>> {
    let classes = |classifier: &str| {
        let weight = format!("{classifier}.weight");
        match file.info(&weight).and_then(|info| info.shape().dims().first()) {
            Some(&classes) => Ok(classes),
            None => Err(file_error(file.path(), format!("has no \"{weight}\", as {name} has"))),
        }
    };
    let network: Box<dyn Layer> = if let Some(found) = ARCHITECTURES.iter().find(|one| one.name == name) {
        if *arguments != TimmArguments::default() {
            let message = format!("model_args of {name} are not supported; only those of vit and deit are");
            return Err(Error::invalid(OP, message));
        }
        let count = classes(found.classifier)?;
        (found.build)(count, WeightSource::file(file, device))?
    } else if let Some((_, preset)) = TIMM.iter().find(|(known, _)| *known == name) {
        let mut config = preset();
        arguments.change(&mut config);
        config.num_classes = classes("head")?;
        Box::new(TimmVit::new(&config, WeightSource::file(file, device))?)
    } else {
        let known: Vec<&str> = ImageClassifier::architectures().collect();
        return Err(Error::invalid(
            OP,
            format!("no architecture \"{name}\"; known are {}", known.join(", ")),
        ));
    };
    network.eval();
    Ok(network)
}

//! Networks for pictures.

pub(crate) mod blocks;
mod boxes;
mod classifier;
mod convnext;
mod densenet;
mod detr;
mod efficientnet;
mod mobilenet_v2;
mod mobilenet_v3;
mod mtcnn;
mod preprocess;
mod regnet;
mod resnet;
mod transformers;
mod unet;
mod vgg;
mod yolov8;

pub use boxes::{Corners, Detection, batched_nms, box_iou, nms};
pub use classifier::{Class, ImageClassifier};
pub use convnext::{ConvNeXt, ConvNeXtConfig};
pub use densenet::{DenseNet, DenseNetConfig};
pub use detr::{Detections, Detr, DetrConfig};
pub use efficientnet::{EfficientNet, EfficientNetConfig, EfficientNetStage};
pub use mobilenet_v2::{MobileNetV2, MobileNetV2Config, MobileNetV2Stage};
pub use mobilenet_v3::{MobileNetV3, MobileNetV3Block, MobileNetV3Config};
pub use mtcnn::{Face, ONet, PNet, Proposals, RNet, Refined};
pub use preprocess::Preprocess;
pub use regnet::{RegNet, RegNetConfig};
pub use resnet::{ResNet, ResNetBlock, ResNetConfig};
pub use transformers::{
    clip::{Clip, ClipConfig, ClipTextConfig, ClipTextModel, ClipVisionConfig, ClipVisionModel},
    dinov2::{Dinov2, Dinov2Config},
    sam::{SamVision, SamVisionConfig},
    siglip::{
        Siglip, SiglipConfig, SiglipTextConfig, SiglipTextModel, SiglipVisionConfig, SiglipVisionModel,
    },
    swin::{SwinConfig, SwinTransformer},
    timm_vit::{TimmVit, TimmVitConfig, VitPool},
    vit::{VisionTransformer, VisionTransformerConfig},
};
pub use unet::{UNet, UNetConfig};
pub use vgg::{Vgg, VggConfig, VggStep};
pub use yolov8::{YoloV8, YoloV8Config};

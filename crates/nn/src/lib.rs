//! Neural networks for Taper: modules and their state, layers, initialization, losses.
//!
//! | items | modules |
//! |---|---|
//! | [`Module`], its fields, state dicts, training mode | `module`, `field`, `containers`, `visitor` |
//! | [`Linear`], [`Conv2d`], [`BatchNorm2d`], [`MultiheadAttention`], [`Lstm`], [`Sequential`] … | `layers` |
//! | [`cross_entropy`], [`mse_loss`] … | `loss` |
//! | initial values | [`init`] |
//! | files | [`save_safetensors`], [`load_safetensors`]; the state of a training: [`Checkpoint`] |
//! | adapters for frozen models | [`lora`] |
//! | weights in blocks of few bits | [`quantize`](quantize()) |
//! | weights and activations of 8 bits | [`qat`] |
//! | layers and losses as functions | [`functional`] |
//! | training on several devices | [`DataParallel`] |
//! | a table of a model's layers | [`summary`] |

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

// So that the code of the derive macro also works in this crate.
#[allow(unused_extern_crates)]
extern crate self as nn;

mod adapt;
mod checkpoint;
mod containers;
mod field;
pub mod functional;
mod functions;
pub mod init;
mod layer_hooks;
mod layers;
mod loss;
#[cfg(doctest)]
mod misfits;
mod module;
mod names;
mod parallel;
mod safetensors;
mod state_dict;
mod summary;
mod tensor_source;
mod training;
mod visitor;

pub use adapt::{
    lora::{self, InputStatistics},
    qat,
    quantize::{
        AwqFold, AwqOptions, Calibration, GptqOptions, QuantizeConfig, QuantizeMethod, Quantized,
        QuantizedLayer, quantize,
    },
};
pub use checkpoint::{Checkpoint, Restore};
pub use field::Parameter;
pub use init::skip_init;
pub use layer_hooks::{with_hook_at, with_layer_hook};
pub use layers::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool,
    AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AlphaDropout, AttentionMasks, AvgPool,
    AvgPool1d, AvgPool2d, AvgPool3d, BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormConfig,
    Bilinear, Celu, ChannelDropout, ChannelShuffle, Checkpointed, CircularPad, CircularPad1d, CircularPad2d,
    CircularPad3d, Conv, Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, ConvTransposeConfig, CosineSimilarity, Dropout, Dropout1d, Dropout2d, Dropout3d, Elu,
    Embedding, EmbeddingBag, EmbeddingBagConfig, EmbeddingConfig, FeatureAlphaDropout, Flatten, Fold,
    FrozenBatchNorm2d, Gelu, GeluTanh, Glu, GroupNorm, Gru, GruCell, Hardshrink, Hardsigmoid, Hardswish,
    Hardtanh, Hooked, Identity, InProjection, InstanceNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d,
    KeyValueCache, Layer, LayerNorm, LayerNormConfig, LeakyRelu, Linear, LinearConfig, LocalResponseNorm,
    LogSigmoid, LogSoftmax, LpPool, LpPool1d, LpPool2d, LpPool3d, Lstm, LstmCell, MaxPool, MaxPool1d,
    MaxPool2d, MaxPool3d, MaxUnpool, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d, Mish, MultiheadAttention,
    MultiheadAttentionConfig, PairwiseDistance, PixelShuffle, PixelUnshuffle, Prelu, ReflectionPad,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, Relu, Relu6, ReplicationPad, ReplicationPad1d,
    ReplicationPad2d, ReplicationPad3d, RmsNorm, Rnn, RnnCell, RnnConfig, Rrelu, Selu, Sequential, Sides,
    Sigmoid, Silu, Softmax, Softmax2d, Softmin, Softplus, Softshrink, Softsign, StochasticDepth, Tanh,
    Tanhshrink, Threshold, TransformerActivation, TransformerConfig, TransformerDecoder,
    TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, Unflatten, Unfold, Upsample,
    ZeroPad, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
#[doc(hidden)]
pub use layers::{Channels, Running};
pub use loss::{
    BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, CtcLoss, DiceLoss, DistillationLoss,
    Divergence, DpoLoss, DpoVariant, GaussianNllLoss, HingeEmbeddingLoss, HuberLoss, KlDivLoss, KtoLoss,
    L1Loss, LinearCrossEntropyLoss, MarginRankingLoss, MseLoss, MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, NllLoss, OrpoLoss, PoissonNllLoss, Reduction,
    SigmoidFocalLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss, answer_log_probabilities,
    binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, dice_loss, huber_loss, kl_div,
    l1_loss, mse_loss, nll_loss, sigmoid_focal_loss, smooth_l1_loss,
};
pub use module::{Module, Unmatched};
pub use names::NameMap;
pub use nn_derive::Module;
pub use parallel::{DataParallel, Scatter};
pub use safetensors::{SafetensorsFile, load_safetensors, save_safetensors};
#[doc(hidden)] // for `weights`
pub use safetensors::{
    SafetensorsHeader, SafetensorsPlace, blocks_key as safetensors_blocks_key,
    read_blocks as read_safetensors_blocks, read_header as read_safetensors_header,
};
pub use state_dict::{StateDict, StateDictTensor};
#[doc(hidden)] // for `onnx`
pub use summary::layer_paths;
pub use summary::{Summary, SummaryRow, summarize, summary};
pub use tensor_source::TensorSource;
pub use training::Training;
pub use visitor::{Entry, Field, Role, Visitor, VisitorMut};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();

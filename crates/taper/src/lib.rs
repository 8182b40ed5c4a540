//! Deep learning in pure Rust that feels like PyTorch and runs on any GPU.
//!
//! A tensor records how it was computed, gradients come from that record, and the device is chosen at run
//! time.
//!
//! ```
//! use taper::prelude::*;
//!
//! let device = taper::best_device();
//! let x = Tensor::arange(1.0, 4.0, 1.0, &device)?.requires_grad();
//! let y = ((&x + 2.0).powi(2) + 3.0).mean();
//! y.backward()?;
//! println!("{y}"); // tensor(19.6667, grad_fn=Mean)
//! let gradient = x.grad().unwrap().to_vec::<f32>()?; // 2 (x + 2) / 3
//! assert!(gradient.iter().zip([2.0, 8.0 / 3.0, 10.0 / 3.0]).all(|(g, e)| (g - e).abs() < 1e-6));
//! # Ok::<(), taper::Error>(())
//! ```
//!
//! # Where to begin
//!
//! **Train a network.** Layers are structs that derive [`Module`](nn::Module), an optimizer updates their
//! parameters, and a loader gives batches. The program below is a complete training; the guide's pages
//! "Getting started" and "Networks and training" explain it. A larger program to start from is
//! `examples/basics/digits.rs` in the repository (`cargo run --release --example digits`).
//!
//! ```
//! # #[cfg(feature = "cpu")] {
//! use taper::prelude::*;
//!
//! let device = taper::best_device();
//! let rng = Generator::seed(0, &taper::cpu());
//! let (first, second) = (Linear::new(64, 32, &rng)?, Linear::new(32, 10, &rng)?);
//! let mut model = Sequential::new().add(first).add(Relu).add(second);
//! model.to(&device)?;
//! let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 0.01, ..Default::default() });
//! let loader = DataLoader::new(taper::data::Digits::load(&taper::cpu())?, 256)?.shuffle(0);
//! for batch in loader.iter() {
//!     let (images, labels) = batch?.to(&device)?;
//!     adam.zero_grad();
//!     let loss = cross_entropy(&model.forward(&images)?, &labels)?;
//!     loss.backward()?;
//!     adam.step()?;
//! }
//! # }
//! # Ok::<(), taper::Error>(())
//! ```
//!
//! **Load a model.** State dicts have PyTorch's names: [`nn::load_safetensors`] and
//! [`Module::load_state_dict`](nn::Module::load_state_dict) read weights into a network that you write in
//! Rust; with the feature `weights`, `model.load(path)?` also reads `.pt`, sharded safetensors, GGUF and
//! NumPy files. The feature `onnx` runs an ONNX file without any code for its network:
//! `taper::onnx::Model::load(path, &device)?.run(..)`.
//!
//! **Read programs.** The guide's cookbook has ten tasks, from segmentation to serving, each as a program in
//! Taper and in PyTorch.
//!
//! **Extend it.** A function of tensors is an operation with gradients on every device. [`custom`] adds
//! your own kernels in Rust and WGSL, [`autograd::Function`] adds a gradient, and [`register_backend`] adds a
//! kind of device. The guide's page "Extending" has an example of each, and `CONTRIBUTING.md` describes how
//! the code is organized.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`prelude`] | the names that nearly every program needs |
//! | [`device`], [`devices`], [`best_device`], [`is_available`], [`register_backend`] | choosing a device |
//! | [`nn`] | modules, layers, losses, state dicts, checkpoints |
//! | [`optim`] | optimizers and schedules |
//! | [`data`] | datasets and loaders |
//! | [`autograd`] | gradients, custom functions |
//! | [`func`] | Jacobians, Hessians, `vmap` |
//! | [`inspect`] | graphs as data and pictures, and the kernels of a line: [`explain`] |
//! | `linalg` | factorizations, systems of equations (feature `linalg`) |
//! | `distributed` | training on many machines (features `distributed`, and `mpi` for MPI) |
//! | `distributions` | probability distributions: draws, densities, divergences (feature `distributions`) |
//! | `models` | known architectures with the weights of their references (features `models`, `text`) |
//! | `onnx` | ONNX files at run time: run them, train them, write them (feature `onnx`) |
//! | `ship` | programs of compiled functions, in Rust or C, without Taper (feature `ship`) |
//! | `studio` | a page that shows a training while it runs (feature `studio`) |
//! | `train` | long runs: checkpoints, Ctrl-C, metrics, TensorBoard (features `train`, `progress`, `plots`) |
//! | `weights` | PyTorch's files, safetensors, GGUF, NumPy (feature `weights`); downloads (feature `hub`) |
//! | [`fft`] | Fourier transforms (on the CPU: feature `fft`) |
//! | [`custom`] | operations with your own kernels |
//! | [`core`](tensor_core) | tensors, the scheduler, the contract of a backend |

mod closed_pipe;
mod devices;
mod environment;
mod pipe;
mod registry;

#[cfg(feature = "ship")]
#[doc(inline)]
pub use ::ship;
#[doc(inline)]
pub use autograd;
#[doc(inline)]
pub use data;
#[cfg(feature = "distributed")]
#[doc(inline)]
pub use distributed;
#[cfg(feature = "distributions")]
#[doc(inline)]
pub use distributions;
#[doc(inline)]
pub use inspect;
#[cfg(feature = "linalg")]
#[doc(inline)]
pub use linalg;
#[cfg(feature = "models")]
#[doc(inline)]
pub use models;
#[doc(inline)]
pub use nn;
#[cfg(feature = "onnx")]
#[doc(inline)]
pub use onnx;
#[doc(inline)]
pub use optim;
#[cfg(feature = "studio")]
#[doc(inline)]
pub use studio;
pub use tensor_core;
pub use tensor_core::fft;
#[cfg(feature = "train")]
#[doc(inline)]
pub use train;
#[cfg(feature = "weights")]
#[doc(inline)]
pub use weights;

#[cfg(feature = "ship")]
pub use ::ship::ship;

pub use autograd::{
    Compiled, checkpoint, compile, compile_or_run, enable_grad, func, grad, grad_of, no_grad,
};
#[cfg(feature = "cpu")]
pub use backend_cpu::{int8_activations, num_threads, set_int8_activations, set_num_threads};
pub use closed_pipe::is_closed_pipe;
#[cfg(feature = "cpu")]
pub use devices::{TensorExt, cpu};
#[cfg(feature = "cpu")]
pub use devices::{best_device, default_device, set_default_device};
pub use devices::{device, device_async, device_count, devices, is_available};
#[cfg(feature = "gpu")]
pub use devices::{wgpu, wgpu_async};
pub use inspect::{
    detect_anomaly, dot, dot_named, explain, memory_snapshot, memory_summary, profile, record_memory,
};
pub use pipe::end_quietly_on_closed_pipe;
pub use registry::register_backend;
pub use tensor_core::float8::*;
pub use tensor_core::{
    Affine, AffineBits, Axes, Axis, Bins, BlockFormat, Codebook4, CodebookScales, DType, Device, DeviceInfo,
    DeviceKind, Element, ElementType, Ellipsis, Error, ErrorKind, FloatFormat, Generator, GgmlType,
    HistogramOptions, Index, IntegerGroups, Interpolation, Kind, Layout, Location, MemoryStats, MeshIndexing,
    NewAxis, Op, Result, Scalar, ScatterReduce, Shape, State, StateReader, StateValue, Stateful, StepBy,
    Tensor, TensorOptions, TensorTree, WeightFormat, autocast, autocast_dtype, bf16, default_dtype, eval_all,
    eval_pending, f16, fork_rng, no_autocast, set_default_dtype,
};

/// Operations with your own kernels: a [`CustomKernel`](custom::CustomKernel) has a kernel for each backend,
/// and a [`Function`](custom::Function) around it has the gradient.
pub mod custom {
    pub use autograd::{Function, Outputs, apply};
    #[cfg(feature = "cpu")]
    pub use backend_cpu::{CpuInput, CpuKernel, CpuOutput};
    #[cfg(feature = "gpu")]
    pub use backend_wgpu::{WgslKernel, WgslProgram};
    pub use tensor_core::custom::{CustomKernel, Request};
}

/// The names that nearly every program needs: `use taper::prelude::*;`. Layers, losses, optimizers and
/// schedules are among them; the rest is in [`nn`], [`optim`] and the other modules.
pub mod prelude {
    #[cfg(feature = "cpu")]
    pub use crate::TensorExt;
    pub use crate::{
        DType, Device, Ellipsis, Error, Generator, NewAxis, Result, Stateful, StepBy, Tensor, autocast,
        no_grad,
    };
    pub use autograd::TensorGrad;
    pub use data::{DataLoader, Dataset, TensorDataset, ToDevice};
    pub use nn::{
        AdaptiveAvgPool2d, AttentionMasks, AvgPool1d, AvgPool2d, BatchNorm1d, BatchNorm2d, BatchNormConfig,
        BceWithLogitsLoss, Checkpoint, Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose1d, ConvTranspose2d,
        ConvTransposeConfig, CrossEntropyLoss, Dropout, Dropout2d, Elu, Embedding, EmbeddingConfig, Flatten,
        Gelu, GroupNorm, Gru, Hooked, HuberLoss, Identity, KlDivLoss, L1Loss, Layer, LayerNorm,
        LayerNormConfig, LeakyRelu, Linear, LinearConfig, LogSoftmax, Lstm, MaxPool1d, MaxPool2d, Module,
        MseLoss, MultiheadAttention, MultiheadAttentionConfig, NllLoss, Parameter, Reduction, Relu, RmsNorm,
        Rnn, RnnConfig, Sequential, Sigmoid, Silu, SmoothL1Loss, Softmax, StateDictTensor, Tanh,
        TransformerConfig, TransformerEncoder, TransformerEncoderLayer, Upsample, binary_cross_entropy,
        binary_cross_entropy_with_logits, cross_entropy, huber_loss, kl_div, l1_loss, mse_loss, nll_loss,
        smooth_l1_loss,
    };
    pub use optim::{
        Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, CosineAnnealingLr, ExponentialLr,
        GradScaler, LambdaLr, Lbfgs, LbfgsConfig, LinearLr, LrSchedule, LrScheduler, MultiStepLr,
        OneCycleConfig, OneCycleLr, Optimizer, ReduceLrOnPlateau, ReduceLrOnPlateauConfig, RmsProp,
        RmsPropConfig, SequentialLr, Sgd, SgdConfig, StepLr, clip_grad_norm,
    };
    #[cfg(feature = "weights")]
    pub use weights::LoadWeights;
}

/// The guide's programs, as tests.
#[cfg(all(doctest, feature = "cpu"))]
mod guide {
    macro_rules! pages {
        ($($(#[$only:meta])? $name:ident = $page:literal;)*) => {$(
            $(#[$only])?
            #[doc = include_str!(concat!("../../../docs/guide/", $page))]
            mod $name {}
        )*};
    }
    pages! {
        getting_started = "getting-started.md";
        from_pytorch = "from-pytorch.md";
        tensors = "tensors.md";
        autograd = "autograd.md";
        training = "training.md";
        data = "data.md";
        devices = "devices.md";
        saving = "saving.md";
        #[cfg(feature = "weights")]
        loading = "loading.md";
        #[cfg(feature = "plots")]
        long_runs = "long-runs.md";
        #[cfg(feature = "studio")]
        studio = "studio.md";
        #[cfg(feature = "text")]
        models = "models.md";
        #[cfg(feature = "models")]
        adapters = "adapters.md";
        #[cfg(feature = "guidance")]
        generating = "generating.md";
        #[cfg(feature = "onnx")]
        onnx = "onnx.md";
        quantizing = "quantizing.md";
        extending = "extending.md";
        performance = "performance.md";
        compile = "compile.md";
        #[cfg(feature = "ship")]
        ship = "ship.md";
    }
    #[doc = include_str!("../../../README.md")]
    mod readme {}
}

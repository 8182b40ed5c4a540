//! Layers as functions of their parameters: `torch.nn.functional`. Activations are methods of
//! [`Tensor`](tensor_core::Tensor).

pub use crate::functions::*;
pub use crate::layers::{MultiHeadAttentionOptions, multi_head_attention_forward};
pub use crate::loss::{
    binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, dice_loss, huber_loss, kl_div,
    l1_loss, mse_loss, nll_loss, sigmoid_focal_loss, smooth_l1_loss,
};

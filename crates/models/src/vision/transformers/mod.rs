//! Transformers over patches of pictures.

pub(crate) mod clip;
pub(crate) mod clip_encoder;
pub(crate) mod dinov2;
pub(crate) mod sam;
pub(crate) mod siglip;
pub(crate) mod swin;
pub(crate) mod timm_vit;
pub(crate) mod vit;

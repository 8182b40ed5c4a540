//! backend-wgpu

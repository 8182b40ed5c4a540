//! Decoders: logits, the loss of the next token, gradients.

use models::{LanguageModel, Llama};
use nn::cross_entropy;
use tensor_core::{Device, Result, Tensor};

use crate::fixture::{Fixture, Run, parameters};

/// The mean cross entropy of each token after those before it.
fn next_token_loss(logits: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (rows, length) = (ids.dims()[0], ids.dims()[1]);
    let classes = logits.dims()[2];
    let logits = logits.narrow(1, 0, length - 1)?.reshape([rows * (length - 1), classes])?;
    cross_entropy(&logits, &ids.narrow(1, 1, length - 1)?.flatten_all())
}

fn run<M: LanguageModel + nn::Module>(model: &M, fixture: &Fixture, device: &Device) -> Result<Run> {
    let ids = fixture.input("ids", device);
    let logits = model.forward(&ids)?;
    let loss = next_token_loss(&logits, &ids)?;
    Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(model) })
}

macro_rules! llamas {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            Fixture::open(stringify!($name))
                .check(1e-4, |fixture, device| run(&Llama::from_folder(fixture.folder(), device)?, fixture, device));
        }
    )*};
}

llamas! {
    llama llama_biases llama3_rope llama_linear_rope llama_dynamic_rope llama_yarn_rope
    mistral qwen2 qwen3 gemma gemma2 gemma3 phi3 phi3_longrope
}

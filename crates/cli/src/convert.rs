//! `taper convert`: weights in another format, another dtype, or blocks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use taper::{
    DType, Device, GgmlType, Tensor, WeightFormat,
    nn::StateDict,
    weights::{self, Encoding, Format, GgufWriter, WeightFile},
};

use crate::{
    error::{Outcome, at},
    files::Target,
    formats, model,
};

/// Converts weights to another format, and rounds them if asked.
///
/// Reads safetensors in one file or in shards, GGUF, PyTorch's .pt, .pth and .bin, NumPy's .npz and .npy,
/// and folders with any of these. Writes the format that the ending of OUT names; without an ending it is a
/// folder with safetensors, which also gets the configuration and the tokenizer of a folder. OUT is renamed
/// from a temporary file when it is complete.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper convert pytorch_model.bin model.safetensors
  taper convert model.gguf arrays.npz --dtype f32
  taper convert SmolLM2-135M-Instruct small --quantize q4_k
  taper convert checkpoint.pt weights.safetensors --under model_state

Names of tensors stay as they are: a GGUF file that llama.cpp reads has other names than a folder of
transformers, so this command does not make one out of the other.")]
pub(crate) struct Options {
    /// A file or folder of weights, or a name such as org/name
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The new file or folder
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Rounds matrices of weights to blocks: GGUF's (q4_k, q8_0, …), int4, uint4, int8, uint8 or nf4
    #[arg(long, value_name = "FORMAT")]
    quantize: Option<String>,
    /// The numbers that share a scale in int4, uint4, int8 and uint8
    #[arg(long, default_value_t = 64)]
    group_size: usize,
    /// Tensors whose names have this part are not rounded; may be given several times
    #[arg(long, value_name = "PART")]
    exclude: Vec<String>,
    /// The dtype of floating-point tensors; tensors in blocks are decoded
    #[arg(long, value_enum)]
    dtype: Option<Floats>,
    /// Takes only the tensors under this name, which it loses: the model in a checkpoint
    #[arg(long, value_name = "NAME")]
    under: Option<String>,
}

/// The dtypes to which floats are cast.
#[derive(Clone, Copy, ValueEnum)]
enum Floats {
    F16,
    Bf16,
    F32,
    F64,
}

impl From<Floats> for DType {
    fn from(floats: Floats) -> DType {
        match floats {
            Floats::F16 => DType::F16,
            Floats::Bf16 => DType::BF16,
            Floats::F32 => DType::F32,
            Floats::F64 => DType::F64,
        }
    }
}

/// Parts of the names of tables whose rows models add as they are; products and gathers alone read blocks.
const ADDED_TABLES: &[&str] = &["position", "token_type", "wpe", "relative_attention_bias"];

/// The blocks that some tensors are rounded to, and how many were.
struct Rounding<'a> {
    format: WeightFormat,
    exclude: &'a [String],
    rounded: usize,
    /// Matrices whose rows are neither whole blocks of the format nor of Q8_0.
    unfit: usize,
    /// Tensors that were in blocks before.
    in_blocks: usize,
}

impl Rounding<'_> {
    /// A matrix of floats in blocks, if its rows fit; any other tensor as it is. Rows that are no whole
    /// blocks of the format may be whole blocks of Q8_0.
    fn apply(&mut self, name: &str, tensor: Tensor) -> taper::Result<Tensor> {
        if tensor.block_format().is_some() {
            self.in_blocks += 1;
            return Ok(tensor);
        }
        let is_weight = tensor.rank() == 2 && tensor.dtype().is_float() && name.ends_with("weight");
        let mut excluded = ADDED_TABLES.iter().copied().chain(self.exclude.iter().map(String::as_str));
        if !is_weight || excluded.any(|part| name.contains(part)) {
            return Ok(tensor);
        }
        let columns = tensor.dims()[1];
        match [self.format, GgmlType::Q8_0.into()].into_iter().find(|format| format.fits(columns)) {
            Some(format) => {
                self.rounded += 1;
                tensor.quantize(format, None)
            }
            None => {
                self.unfit += 1;
                Ok(tensor)
            }
        }
    }
}

/// The treatment of tensors that are in blocks.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    /// They are decoded to this dtype.
    Decode(DType),
    /// They stay as they are.
    Keep,
    /// They stay as they are, and so do the bytes of formats that no kernel decodes: in a GGUF file.
    KeepOpaque,
}

impl Blocks {
    /// Whether the bytes of a tensor are copied, because no kernel decodes them.
    fn skips(self, encoding: &Encoding) -> bool {
        match encoding {
            Encoding::Blocks(blocks) => {
                self == Blocks::KeepOpaque && GgmlType::ALL.iter().all(|known| known.block_type() != *blocks)
            }
            _ => false,
        }
    }
}

/// The tensors of a file that are not copied as bytes, rounded if asked.
fn tensors(
    file: &WeightFile,
    rounding: &mut Option<Rounding<'_>>,
    blocks: Blocks,
    device: &Device,
) -> Outcome<StateDict> {
    let mut dict = StateDict::new();
    for (name, info) in file.tensors() {
        if file.is_part(name) || blocks.skips(info.encoding()) {
            continue;
        }
        let tensor = file.tensor(name, device)?;
        let tensor = match blocks {
            Blocks::Decode(dtype) if tensor.dtype().is_float() => tensor.dequantize().to_dtype(dtype)?,
            Blocks::Decode(_) | Blocks::Keep | Blocks::KeepOpaque => tensor,
        };
        let tensor = match rounding {
            Some(rounding) => rounding.apply(name, tensor)?,
            None => tensor,
        };
        dict.insert(name.to_string(), tensor);
    }
    Ok(dict)
}

/// Writes a GGUF file, with the metadata of the file before.
fn save_gguf(
    file: &WeightFile,
    rounding: &mut Option<Rounding<'_>>,
    blocks: Blocks,
    (path, device): (&Path, &Device),
) -> Outcome {
    let mut writer = GgufWriter::new().state_dict(&tensors(file, rounding, blocks, device)?);
    for (key, value) in file.gguf_metadata() {
        // The type of most tensors, which is no longer true after rounding.
        if rounding.is_none() || key != "general.file_type" {
            writer = writer.metadata(key, value.clone());
        }
    }
    for (name, info) in file.tensors().filter(|(_, info)| blocks.skips(info.encoding())) {
        if let Encoding::Blocks(format) = info.encoding() {
            writer = writer.blocks(name, *format, info.shape().dims(), &file.bytes(name, device)?);
        }
    }
    Ok(writer.save(path)?)
}

/// Copies what a folder has beside its weights: the configuration, the tokenizer, the labels.
fn copy_companions(from: &Path, to: &Path) -> Outcome {
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_companion = ["json", "jinja", "txt", "model"].contains(&ending) && !name.contains(".index.");
        if is_companion && path.is_file() {
            fs::copy(&path, to.join(name)).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// The format of the options' blocks, if the new file can hold it.
fn block_format(options: &Options, target: Target) -> Outcome<Option<WeightFormat>> {
    let Some(name) = &options.quantize else { return Ok(None) };
    let format = formats::named(name, options.group_size)?;
    let holders = match (target.has_blocks(), target, format) {
        (false, ..) => ".safetensors, .gguf or a folder",
        (true, Target::Gguf, WeightFormat::Integers(_) | WeightFormat::Nf4 { .. }) => {
            ".safetensors or a folder"
        }
        (true, ..) => return Ok(Some(format)),
    };
    let output = options.output.display();
    Err(format!("{output}: this format holds no blocks of {name}; give {holders}").into())
}

/// Writes the new file or folder.
pub(crate) fn run(options: &Options) -> Outcome {
    let target = Target::of(&options.output)?;
    let format = block_format(options, target)?;
    let exclude = &options.exclude;
    let mut rounding = format.map(|format| Rounding { format, exclude, rounded: 0, unfit: 0, in_blocks: 0 });
    let path = model::find(&options.input)?;
    let is_same = path.canonicalize().ok() == options.output.canonicalize().ok();
    if is_same && options.output.exists() {
        return Err(format!("{}: this is the input too; give another name", options.output.display()).into());
    }
    let mut file = weights::open(&path)?;
    if let Some(name) = &options.under {
        file = file.under(name)?;
    }
    if let Some(floats) = options.dtype {
        file = file.floats(floats.into());
    }
    let device = taper::cpu();
    let blocks = match (options.dtype, target) {
        (Some(floats), _) => Blocks::Decode(floats.into()),
        (None, Target::Gguf) => Blocks::KeepOpaque,
        (None, _) => Blocks::Keep,
    };
    if target == Target::Gguf {
        save_gguf(&file, &mut rounding, blocks, (&options.output, &device))?;
    } else {
        let dict = tensors(&file, &mut rounding, blocks, &device)?;
        target.save(&options.output, &dict)?;
        let decoded = dict.values().filter(|tensor| tensor.block_format().is_some()).count();
        if decoded > 0 && !target.has_blocks() {
            eprintln!("[{decoded} tensors in blocks were decoded to f32]");
        }
        if file.format() == Format::Gguf {
            eprintln!("[the metadata of GGUF is left out: only .gguf holds it]");
        }
        if target == Target::Folder && path.is_dir() {
            copy_companions(&path, &options.output)?;
        }
    }
    if let Some(Rounding { format, rounded, unfit, in_blocks, .. }) = rounding {
        eprintln!(
            "[{format}: {rounded} matrices rounded, {unfit} left whose rows are no whole blocks, {in_blocks} \
             left that were in blocks before (--dtype f32 decodes them first)]"
        );
    }
    eprintln!("[{} to {}: {} tensors]", path.display(), options.output.display(), file.len());
    Ok(())
}

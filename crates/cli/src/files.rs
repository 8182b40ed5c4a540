//! Files of tensors to be written, whose format is the ending of their name.

use std::path::Path;

use taper::{
    nn::{StateDict, save_safetensors},
    weights::{GgufWriter, ShardOptions, save_npy, save_npz, save_sharded, save_torch},
};

use crate::error::Outcome;

/// The formats that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Safetensors,
    Gguf,
    Npz,
    Npy,
    Torch,
    /// A folder with safetensors, in shards if they are large.
    Folder,
}

impl Target {
    /// The format of a path: the ending of its name, or a folder.
    pub(crate) fn of(path: &Path) -> Outcome<Target> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        Ok(match ending.to_ascii_lowercase().as_str() {
            _ if path.is_dir() => Target::Folder,
            "safetensors" => Target::Safetensors,
            "gguf" => Target::Gguf,
            "npz" => Target::Npz,
            "npy" => Target::Npy,
            "pt" | "pth" | "bin" => Target::Torch,
            "" => Target::Folder,
            _ => {
                return Err(format!(
                    "{}: no format has the ending .{ending}; give .safetensors, .gguf, .npz, .npy, .pt, or a \
                     folder without an ending",
                    path.display()
                )
                .into());
            }
        })
    }

    /// Whether the format holds tensors in blocks.
    pub(crate) fn has_blocks(self) -> bool {
        match self {
            Target::Safetensors | Target::Gguf | Target::Folder => true,
            Target::Npz | Target::Npy | Target::Torch => false,
        }
    }

    /// Writes tensors in this format. Each file is written completely or not at all.
    pub(crate) fn save(self, path: &Path, dict: &StateDict) -> Outcome {
        match self {
            Target::Safetensors => save_safetensors(path, dict)?,
            Target::Gguf => GgufWriter::new().state_dict(dict).save(path)?,
            Target::Npz => save_npz(path, dict)?,
            Target::Npy => match dict.values().next() {
                Some(tensor) if dict.len() == 1 => save_npy(path, tensor)?,
                _ => {
                    return Err(format!(
                        "{}: a .npy file holds one tensor, and there are {}; give a name that ends in .npz",
                        path.display(),
                        dict.len()
                    )
                    .into());
                }
            },
            Target::Torch => save_torch(path, dict)?,
            Target::Folder => drop(save_sharded(path, dict, ShardOptions::default())?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_is_its_format() {
        let of = |path: &str| Target::of(Path::new(path)).map_err(|error| error.to_string());
        assert_eq!(of("a/b.SAFETENSORS"), Ok(Target::Safetensors));
        assert_eq!(of("model"), Ok(Target::Folder));
        assert_eq!(of("."), Ok(Target::Folder));
        assert!(of("a.h5").unwrap_err().contains(".safetensors"));
    }
}

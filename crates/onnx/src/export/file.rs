//! Writes the message to a file. Weights that do not fit in one message are in a second file beside it.

use std::{collections::BTreeMap, io::Write, path::Path};

use prost::Message;
use tensor_core::{
    Result,
    file::{file_error, write_whole},
};

use super::{Export, Exported, invalid};
use crate::proto::{ModelProto, StringStringEntryProto, TensorProto};

/// The most bytes of weights within a message: protobuf allows 2 GiB, and nodes and names need some.
pub(super) const LARGEST: u64 = (1 << 31) - (1 << 26);
/// The number of bytes from which an initializer is stored in the second file, if there is one.
const EXTERNAL_MIN_BYTES: usize = 1024;
/// The alignment of an initializer in the second file, so that programs can map it into memory.
const ALIGNMENT: u64 = 4096;
/// The number of `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// Writes a model, and returns its summary.
pub(super) fn write(path: &Path, mut model: ModelProto, options: &Export) -> Result<Exported> {
    let Some(graph) = &mut model.graph else { return Err(invalid("there is no graph".into())) };
    let size = |tensor: &TensorProto| tensor.raw_data.as_ref().map_or(0, |data| data.len() as u64);
    let mut operators = BTreeMap::new();
    for node in &graph.node {
        *operators.entry(node.op_type.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    let bytes = graph.initializer.iter().map(size).sum();
    let exported = Exported { operators, initializers: graph.initializer.len(), bytes };
    if bytes > options.external_data_above.min(LARGEST) {
        move_out(path, &mut graph.initializer)?;
    }
    let failed = |error| file_error(path, format!("cannot be written: {error}"));
    write_whole(path, failed, |file| file.write_all(&model.encode_to_vec()).map_err(failed))?;
    Ok(exported)
}

/// Writes the elements of larger initializers to the second file.
fn move_out(path: &Path, initializers: &mut [TensorProto]) -> Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(file_error(
            path,
            "its name is no Unicode text, in which the file of the weights is named",
        ));
    };
    let location = format!("{name}.data");
    let beside = path.with_file_name(&location);
    let failed = |error| file_error(&beside, format!("cannot be written: {error}"));
    write_whole(&beside, failed, |file| {
        let mut at = 0u64;
        for tensor in initializers {
            let Some(data) = tensor.raw_data.take_if(|data| data.len() >= EXTERNAL_MIN_BYTES) else {
                continue;
            };
            let start = at.next_multiple_of(ALIGNMENT);
            file.write_all(&vec![0; (start - at) as usize]).map_err(failed)?;
            file.write_all(&data).map_err(failed)?;
            at = start + data.len() as u64;
            let entry = |(key, value): (&str, String)| StringStringEntryProto {
                key: Some(key.into()),
                value: Some(value),
            };
            let place = [
                ("location", location.clone()),
                ("offset", start.to_string()),
                ("length", data.len().to_string()),
            ];
            tensor.external_data = place.into_iter().map(entry).collect();
            tensor.data_location = Some(EXTERNAL);
        }
        Ok(())
    })
}

//! The times of networks in the page, beside those of ONNX Runtime Web.

use serde_json::Value;

use crate::{Outcome, judge::number};

/// The difference of outputs that is allowed, as a part of the largest output. Basic Pitch normalizes a
/// logarithm by its range, which magnifies rounding.
const TOLERANCE: f64 = 3e-3;

/// Prints the results of `page/bench.js` as a table, unless outputs differ.
pub(crate) fn table(results: &Value) -> Outcome {
    println!("ONNX Runtime Web {}, one thread each, medians", results["version"]);
    println!("| network | Taper ms | ONNX Runtime Web ms | ratio | largest difference |");
    println!("|---|---:|---:|---:|---:|");
    for result in results["bench"].as_array().ok_or("no results")? {
        let file = result["file"].as_str().unwrap_or_default();
        let [taper, peer, largest] = ["taper", "peer", "largest"].map(|name| number(result, name));
        let (taper, peer, largest) = (taper?, peer?, largest?);
        let apart = number(result, "apart")?;
        println!("| {file} | {taper:.3} | {peer:.3} | {:.2}x | {apart:.1e} of {largest:.2} |", peer / taper);
        if apart > TOLERANCE * largest.max(1.0) {
            return Err(format!("{file}: the outputs are {apart:.1e} apart").into());
        }
    }
    Ok(())
}

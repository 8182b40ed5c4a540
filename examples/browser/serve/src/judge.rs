//! Bounds for the results of the page's own test.

use serde_json::Value;

use crate::Outcome;

/// The bytes that the page may fetch before a part is used.
const FIRST_LOAD_LIMIT: f64 = 2e6;

/// Judges the results of `page/check.js` of the page at `url`, all parts of them.
pub(crate) fn all(results: &Value, url: &str) -> Outcome {
    let verdicts = [
        load(results, url),
        phone(&results["phone"]),
        each(results, "digits").and_then(digits),
        each(results, "studio").and_then(studio),
        each(results, "language").and_then(language),
        refusals(&results["refused"]),
        each(results, "voice").and_then(voice),
        each(results, "operations").and_then(operations),
    ];
    let wrong: Vec<String> =
        verdicts.into_iter().filter_map(|verdict| Some(verdict.err()?.to_string())).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// The results of a part on each device, without errors.
fn each<'a>(results: &'a Value, part: &str) -> Outcome<&'a [Value]> {
    let all = results[part].as_array().ok_or_else(|| format!("{part}: no results"))?;
    let wrong = all.iter().filter_map(|result| {
        let (network, device) = (text(result, "network"), text(result, "device"));
        Some(format!("{part} {network} on {device}: {}", result["error"].as_str()?))
    });
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() { Ok(all) } else { Err(wrong.join("\n").into()) }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

pub(crate) fn number(value: &Value, name: &str) -> Outcome<f64> {
    value[name].as_f64().ok_or_else(|| format!("there is no number {name} in {value}").into())
}

fn numbers(value: &Value, name: &str) -> Vec<f64> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The first load is small, and everything comes from this server.
fn load(results: &Value, url: &str) -> Outcome {
    let origin = url.split('?').next().unwrap_or_default();
    let fetched = |name: &str| results[name].as_array().map_or(&[][..], Vec::as_slice);
    for entry in fetched("first").iter().chain(fetched("fetched")) {
        let name = text(entry, "name");
        if !name.starts_with(origin) {
            return Err(format!("the page has fetched {name}, which is not from {origin}").into());
        }
    }
    let (mut sent, mut whole) = (0.0, 0.0);
    for entry in fetched("first") {
        (sent, whole) = (sent + number(entry, "sent")?, whole + number(entry, "whole")?);
    }
    println!("first load: {:.2} MB, uncompressed {:.2} MB", sent / 1e6, whole / 1e6);
    // The studio's sections are loaded when they are opened.
    let is_sections = |entry: &&Value| text(entry, "name").ends_with("/component.js");
    if fetched("first").iter().any(|entry| is_sections(&entry))
        || !fetched("fetched").iter().any(|entry| is_sections(&entry))
    {
        return Err("the studio's sections are to be loaded when they are opened".into());
    }
    match sent > 0.0 && sent < FIRST_LOAD_LIMIT && sent < whole {
        true => Ok(()),
        false => Err(format!("the first load has {sent} bytes, expected {FIRST_LOAD_LIMIT} at most").into()),
    }
}

/// The page fits on a phone, and its colours change.
fn phone(phone: &Value) -> Outcome {
    let (width, widest) = (number(phone, "width")?, number(phone, "widest")?);
    if widest > width {
        return Err(format!("on a phone {width} pixels wide, the page is {widest} wide").into());
    }
    match phone["backs"].as_array().map(Vec::as_slice) {
        Some([light, dark, ..]) if light != dark => Ok(()),
        _ => Err(format!("the page's colours do not change: {phone}").into()),
    }
}

/// Each network learns on each device, alike, and reads drawn digits.
fn digits(results: &[Value]) -> Outcome {
    let mut first: Vec<(&str, f64)> = Vec::new();
    for result in results {
        let what = format!("{} on {}", text(result, "network"), text(result, "device"));
        let epochs = result["epochs"].as_array().ok_or_else(|| format!("{what}: no epochs"))?;
        let [begin, .., end] = &epochs[..] else { return Err(format!("{what}: too few epochs").into()) };
        let (loss, accuracy) = (number(begin, "loss")?, number(end, "accuracy")?);
        let found = &result["found"];
        println!(
            "{what}, {}: loss of the first epoch {loss:.6}, accuracy {accuracy:.4} after {} epochs, {:.1} s; drawn {found}",
            text(result, "description"),
            epochs.len(),
            number(result, "seconds")?
        );
        if accuracy < 0.9 || number(end, "loss")? > loss / 2.0 {
            return Err(format!("{what}: accuracy {accuracy}, expected 0.9, and half the loss").into());
        }
        let read =
            [0, 1, 7].iter().filter(|digit| found[digit.to_string()].as_i64() == Some(**digit)).count();
        if read < 2 {
            return Err(format!("{what}: {read} of three drawn digits are read: {found}").into());
        }
        let network = text(result, "network");
        match first.iter().find(|(known, _)| *known == network) {
            // Dropout draws other numbers only if the network is another one.
            Some((_, other)) if (other - loss).abs() > 1e-3 => {
                return Err(format!("{what}: loss {loss} of the first epoch, {other} on the CPU").into());
            }
            Some(_) => {}
            None => first.push((network, loss)),
        }
    }
    Ok(())
}

/// The studio's sections show curves, a model, kernels with their programs, and memory, on each device; on
/// the processor they have times and shares of its limits.
fn studio(results: &[Value]) -> Outcome {
    const SHOWN: [&str; 6] = ["curves", "parameters", "boxes", "kernels", "programs", "memory"];
    for result in results {
        let device = text(result, "device");
        let counts: Vec<String> = SHOWN.iter().map(|what| format!("{what} {}", result[*what])).collect();
        println!("studio on {device}: {}", counts.join(", "));
        let only = if device == "cpu" { "shares" } else { "sources" };
        for what in SHOWN.iter().chain([&only]) {
            if number(result, what)? < 1.0 {
                return Err(format!("the studio on {device} shows no {what}: {result}").into());
            }
        }
        if number(result, "buttons")? != 3.0 || number(result, "widest")? > number(result, "width")? {
            return Err(format!("the studio's sections on {device}: {result}").into());
        }
    }
    Ok(())
}

/// The loss of the answers falls on each device, alike, and the model itself stays as it is.
fn language(results: &[Value]) -> Outcome {
    let mut first = Vec::new();
    for result in results {
        let device = text(result, "device");
        let losses = numbers(result, "losses");
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        let quarter = losses.len() / 4;
        if quarter == 0 {
            return Err(format!("language on {device}: {} steps", losses.len()).into());
        }
        let (begin, end) = (mean(&losses[..quarter]), mean(&losses[losses.len() - quarter..]));
        let [before, after] = ["baseBefore", "baseAfter"].map(|name| number(result, name));
        let (before, after) = (before?, after?);
        println!(
            "language on {device}, {}: loss {begin:.4} in the first epoch, {end:.4} in the last, {:.0} ms a step, memory {:.0} MB, tensors {:.0} MB",
            text(result, "description"),
            number(result, "milliseconds")?,
            number(result, "memory")? / 1e6,
            number(result, "peak")? / 1e6
        );
        println!("    before: {:?}\n    after: {:?}", text(result, "before"), text(result, "after"));
        if end > 0.8 * begin {
            return Err(format!("language on {device}: the loss falls from {begin} to {end} only").into());
        }
        if before != after || text(result, "before") != text(result, "without") {
            return Err(
                format!("language on {device}: the model without its adapter has changed: {result}").into()
            );
        }
        if text(result, "before") == text(result, "after") {
            return Err(format!("language on {device}: the answer is the same after the training").into());
        }
        first.push(losses[0]);
    }
    match first[..] {
        [cpu, gpu] if (cpu - gpu).abs() < 1e-2 => Ok(()),
        _ => Err(format!("language: the first losses differ: {first:?}").into()),
    }
}

/// Files that are no models are refused by a sentence.
fn refusals(sentences: &Value) -> Outcome {
    const EXPECTED: [&str; 3] = ["no GGUF file", "memory for files of", "cut off or damaged"];
    let sentences = sentences.as_array().ok_or_else(|| format!("refusals: {sentences}"))?;
    for (k, expected) in EXPECTED.iter().enumerate() {
        let sentence = sentences.get(k).and_then(Value::as_str).unwrap_or_default();
        if !sentence.contains(expected) {
            return Err(format!("the page says {sentence:?}, which does not have {expected:?}").into());
        }
    }
    Ok(())
}

/// Checks the probabilities of speech against ONNX Runtime's, which the page sends along.
fn voice(results: &[Value]) -> Outcome {
    const TOLERANCE: f64 = 1e-4;
    for result in results {
        let device = text(result, "device");
        let (found, wanted) = (numbers(result, "probabilities"), numbers(result, "wanted"));
        let apart = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!(
            "voice on {device}: {} chunks, at most {apart:.1e} from ONNX Runtime, {:.1} ms each, the first {:.0} ms",
            found.len(),
            number(result, "milliseconds")?,
            number(result, "first")?
        );
        let speech = found.iter().filter(|&&p| p >= 0.5).count();
        if found.len() != wanted.len() || speech < 20 || apart > TOLERANCE {
            return Err(format!("voice on {device}: {speech} chunks of speech, {apart:.1e} apart").into());
        }
    }
    Ok(())
}

/// The operations that were computed on each device are right; none are, if the table is not built in.
fn operations(results: &[Value]) -> Outcome {
    let mut lines: Vec<&str> = Vec::new();
    for result in results {
        let wrong = result["wrong"].as_array().ok_or("operations: no list of what is wrong")?;
        let (device, count) = (text(result, "device"), &result["count"]);
        println!("{device}: {count} rows of the table of operations, {} of them wrong", wrong.len());
        lines.extend(wrong.iter().filter_map(Value::as_str));
    }
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n").into()) }
}

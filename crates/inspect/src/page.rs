//! A profile as one HTML page without network access or scripts: the lines of the program that took time, the
//! kernels of each, a timeline, and the graph, each linked to the others.

use std::{collections::HashMap, fmt::Write, fs};

use tensor_core::{KernelRun, backend::readable_bytes};

use crate::{Graph, Profile, svg::escaped};

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:75em}code,td{font:12px monospace}\
     table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}\
     td.l,th.l{text-align:left}tr:target,h3:target{background:#ffd}a{color:#05a}svg a rect:hover{stroke:#05a;stroke-width:3}";
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// The width of the timeline, and the height of a device's row in it.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 26.0;
/// The greatest number of kernels in the timeline: the longest are drawn.
const DRAWN: usize = 4000;

/// Sums over the kernels of one source line.
struct SourceLine<'a> {
    file: &'a str,
    line: u32,
    seconds: f64,
    /// Runs, seconds, bytes and arithmetic of each kernel, by device, kernel and operation.
    kernels: Vec<(&'a KernelRun, u64, f64, u64, u64)>,
}

fn source_lines(runs: &[KernelRun]) -> Vec<SourceLine<'_>> {
    let mut places: HashMap<(&str, u32), usize> = HashMap::new();
    let mut lines: Vec<SourceLine<'_>> = Vec::new();
    for run in runs {
        let (file, line) = (run.location.file(), run.location.line());
        let at = *places.entry((file, line)).or_insert(lines.len());
        if at == lines.len() {
            lines.push(SourceLine { file, line, seconds: 0.0, kernels: Vec::new() });
        }
        let (own, seconds) = (&mut lines[at], run.time.as_secs_f64());
        own.seconds += seconds;
        let same =
            |other: &KernelRun| (&other.device, other.kernel, other.op) == (&run.device, run.kernel, run.op);
        let found = own.kernels.iter().position(|kernel| same(kernel.0));
        let at = found.unwrap_or(own.kernels.len());
        if found.is_none() {
            own.kernels.push((run, 0, 0.0, 0, 0));
        }
        let (_, count, time, bytes, flops) = &mut own.kernels[at];
        (*count, *time, *bytes) = (*count + 1, *time + seconds, *bytes + run.bytes_read + run.bytes_written);
        *flops += run.flops.unwrap_or(0);
    }
    lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    lines
}

impl<T> Profile<T> {
    /// The profile as one HTML page, with a graph if one is given: lines of the program, kernels, times and
    /// nodes are linked to each other. If the program's sources can be read, their lines are shown.
    #[must_use]
    pub fn html(&self, graph: Option<&Graph>) -> String {
        let lines = source_lines(&self.runs);
        let numbers: HashMap<(&str, u32), usize> =
            lines.iter().enumerate().map(|(k, line)| ((line.file, line.line), k)).collect();
        let all = self.time().as_secs_f64();
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Profile</title><style>{STYLE}</style></head><body>\n\
             <h1>{} kernels, {}</h1>\n<h2>When</h2>\n{}<h2>Lines</h2>\n",
            self.runs.len(),
            micros(all),
            timeline(&self.runs, &numbers)
        );
        let mut sources: HashMap<&str, Vec<String>> = HashMap::new();
        for (k, line) in lines.iter().enumerate() {
            let text = sources.entry(line.file).or_insert_with(|| {
                let text = fs::read_to_string(line.file).unwrap_or_default();
                text.lines().map(str::to_string).collect()
            });
            let text = text.get(line.line as usize - 1).map_or("", |text| text.trim());
            let (place, share) =
                (format!("{}:{}", line.file, line.line), line.seconds / all.max(f64::MIN_POSITIVE));
            let _ = write!(
                page,
                "<h3 id=\"line-{k}\">{}, {:.1} %: {}</h3>\n<p><code>{}</code></p>\n<table><tr><th class=\"l\">device</th>\
                 <th class=\"l\">kernel</th><th class=\"l\">for</th><th>runs</th><th>time</th><th>bytes</th><th>GB/s</th>\
                 <th>GFLOP/s</th></tr>\n",
                micros(line.seconds),
                share * 100.0,
                escaped(&place),
                escaped(text)
            );
            for &(run, count, seconds, bytes, flops) in &line.kernels {
                let rate = |n: u64| n as f64 / seconds.max(f64::MIN_POSITIVE) / 1e9;
                let _ = writeln!(
                    page,
                    "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{count}</td><td>{}</td><td>{}</td>\
                     <td>{:.2}</td><td>{:.2}</td></tr>",
                    escaped(&run.device),
                    run.kernel,
                    run.op,
                    micros(seconds),
                    readable_bytes(bytes),
                    rate(bytes),
                    rate(flops)
                );
            }
            page.push_str("</table>\n");
        }
        if let Some(graph) = graph {
            let link = |file: &str, line: u32| numbers.get(&(file, line)).map(|k| format!("#line-{k}"));
            let _ = writeln!(page, "<h2>Graph</h2>\n{}", graph.svg_with_links(link));
        }
        page.push_str("</body></html>\n");
        page
    }
}

/// A bar for each kernel from its start to its end, in its device's row.
fn timeline(runs: &[KernelRun], numbers: &HashMap<(&str, u32), usize>) -> String {
    let mut devices: Vec<&str> = Vec::new();
    for run in runs {
        if !devices.contains(&run.device.as_str()) {
            devices.push(&run.device);
        }
    }
    let end = runs.iter().map(|run| (run.start + run.time).as_secs_f64()).fold(f64::MIN_POSITIVE, f64::max);
    let mut longest: Vec<&KernelRun> = runs.iter().collect();
    longest.sort_by_key(|run| std::cmp::Reverse(run.time));
    longest.truncate(DRAWN);
    let height = ROW * devices.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" font-size=\"11\">\n"
    );
    for run in longest {
        let row = devices.iter().position(|device| *device == run.device).unwrap_or(0);
        let line = numbers.get(&(run.location.file(), run.location.line())).copied().unwrap_or(0);
        let (x, width) = (run.start.as_secs_f64() / end * WIDTH, run.time.as_secs_f64() / end * WIDTH);
        let title =
            format!("{} for {}: {} at {}", run.kernel, run.op, micros(run.time.as_secs_f64()), run.location);
        let (y, bar, fill) = (row as f64 * ROW + 12.0, ROW - 14.0, COLOURS[line % COLOURS.len()]);
        let _ = writeln!(
            svg,
            "<a href=\"#line-{line}\"><rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{bar}\" fill=\"{fill}\"><title>{}</title></rect></a>",
            width.max(0.3),
            escaped(&title)
        );
    }
    for (row, device) in devices.iter().enumerate() {
        let _ = writeln!(svg, "<text x=\"0\" y=\"{}\">{}</text>", row as f64 * ROW + 10.0, escaped(device));
    }
    svg.push_str("</svg>\n");
    svg
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

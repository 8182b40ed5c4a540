//! The table of statistics, `stats.tsv`: a line for each kernel on each GPU.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

use crate::{Result, vulkan::Statistic};

/// The columns: the driver's name of a statistic, and the head of the column.
const COLUMNS: &[(&str, &str)] = &[
    ("VGPRs", "vgprs"),
    ("Spilled SGPRs", "spilled_sgprs"),
    ("Spilled VGPRs", "spilled_vgprs"),
    ("Scratch size", "scratch"),
    ("LDS size", "lds"),
    ("Subgroups per SIMD", "waves"),
    ("Instructions", "instructions"),
    ("Latency", "latency"),
    ("Inverse Throughput", "inverse_throughput"),
];
/// The columns of registers that did not fit, any growth of which is a failure.
const SPILLS: &[&str] = &["spilled_sgprs", "spilled_vgprs", "scratch"];
const COST: &str = "inverse_throughput";
/// How much greater than in the table the inverse throughput may be.
const COST_TOLERANCE: f64 = 4.0 / 3.0;
const WAVES: &str = "waves";

/// The line of a kernel.
pub(crate) fn line(gpu: &str, driver: &str, kernel: &str, statistics: &[Statistic]) -> Result<String> {
    let mut line = format!("{gpu}\t{driver}\t{kernel}");
    for (name, _) in COLUMNS {
        let found = statistics.iter().find(|(other, _)| other == name);
        let (_, value) = found.ok_or_else(|| format!("the driver does not report {name:?}"))?;
        let _ = write!(line, "\t{value}");
    }
    Ok(line + "\n")
}

type Key = (String, String);

/// The statistics by GPU and kernel.
#[derive(Default)]
pub(crate) struct Table {
    driver: String,
    rows: BTreeMap<Key, Vec<u64>>,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("stats.tsv")
}

impl Table {
    /// The table of lines as `line` writes them; a line of heads is passed over.
    pub(crate) fn parse(text: &str) -> Result<Table> {
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.starts_with("gpu\t")) {
            let cells: Vec<&str> = line.split('\t').collect();
            let [gpu, driver, kernel, values @ ..] = &cells[..] else {
                return Err(format!("no line of statistics: {line:?}").into());
            };
            if values.len() != COLUMNS.len() {
                return Err("stats.tsv has other columns: run `cargo xtask gpu-stats --write`".into());
            }
            let values = values.iter().map(|value| value.parse()).collect::<Result<_, _>>()?;
            table.driver = (*driver).to_string();
            table.rows.insert(((*gpu).to_string(), (*kernel).to_string()), values);
        }
        Ok(table)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from("gpu\tdriver\tkernel");
        COLUMNS.iter().for_each(|(_, head)| text.extend(["\t", head]));
        text.push('\n');
        for ((gpu, kernel), values) in &self.rows {
            let _ = write!(text, "{gpu}\t{}\t{kernel}", self.driver);
            values.iter().for_each(|value| {
                let _ = write!(text, "\t{value}");
            });
            text.push('\n');
        }
        text
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(path(), self.text())?;
        println!("tools/gpu-stats/stats.tsv is written: {} kernels", self.rows.len());
        Ok(())
    }

    /// Fails if a kernel is worse than in the checked-in table, or not in it.
    pub(crate) fn check(&self) -> Result<()> {
        let kept = fs::read_to_string(path()).map_err(|error| {
            format!("tools/gpu-stats/stats.tsv: {error}; `cargo xtask gpu-stats --write` writes it")
        })?;
        let kept = Table::parse(&kept)?;
        if kept.driver != self.driver {
            println!(
                "skipped: stats.tsv was written with {}, and here is {}; compilers of two versions are not compared",
                kept.driver, self.driver
            );
            return Ok(());
        }
        let worse = self.worse_than(&kept);
        if worse.is_empty() {
            println!("{} kernels are no worse than in tools/gpu-stats/stats.tsv", self.rows.len());
            return Ok(());
        }
        Err(format!(
            "kernels are worse than in tools/gpu-stats/stats.tsv; if that is meant, run `cargo xtask gpu-stats --write`\n  {}",
            worse.join("\n  ")
        )
        .into())
    }

    fn worse_than(&self, kept: &Table) -> Vec<String> {
        let mut found = Vec::new();
        for (key @ (gpu, kernel), values) in &self.rows {
            let Some(old) = kept.rows.get(key) else {
                found.push(format!("{kernel} on {gpu}: not in the table"));
                continue;
            };
            for ((_, head), (&new, &old)) in COLUMNS.iter().zip(values.iter().zip(old)) {
                let spills = SPILLS.contains(head) && new > old;
                let costs = *head == COST && new as f64 > old as f64 * COST_TOLERANCE;
                let waves = *head == WAVES && 2 * new <= old;
                if spills || costs || waves {
                    found.push(format!("{kernel} on {gpu}: {head} {old} -> {new}"));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(changed: &str, value: u64) -> Result<Table> {
        let value = |head: &str| if head == changed { value } else { 30 };
        let statistics: Vec<Statistic> =
            COLUMNS.iter().map(|(name, head)| ((*name).to_string(), value(head))).collect();
        Table::parse(&line("gpu 1", "1.0", "sum", &statistics)?)
    }

    #[test]
    fn a_spill_a_third_of_cost_and_half_of_the_waves_are_failures() -> Result<()> {
        let kept = table("", 0)?;
        for (head, fine, wrong) in [
            ("spilled_vgprs", 30, 31),
            ("scratch", 29, 31),
            ("inverse_throughput", 40, 41),
            ("waves", 16, 15),
            ("latency", 1000, u64::MAX),
        ] {
            assert_eq!(table(head, fine)?.worse_than(&kept), Vec::<String>::new(), "{head}");
            let found = table(head, wrong)?.worse_than(&kept);
            let expected = format!("sum on gpu 1: {head} 30 -> {wrong}");
            assert_eq!(found, if head == "latency" { vec![] } else { vec![expected] });
        }
        Ok(())
    }

    #[test]
    fn the_text_is_read_again() -> Result<()> {
        let one = table("latency", 7)?;
        let again = Table::parse(&one.text())?;
        assert_eq!((again.rows, again.driver), (one.rows, one.driver));
        assert_eq!(Table::default().worse_than(&table("", 0)?), Vec::<String>::new());
        assert_eq!(table("", 0)?.worse_than(&Table::default()), ["sum on gpu 1: not in the table"]);
        assert!(Table::parse("one\ttwo").is_err());
        Ok(())
    }
}

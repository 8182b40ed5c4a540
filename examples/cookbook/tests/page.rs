//! The guide's cookbook shows parts of programs, and these parts are still in the programs.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

/// Lines without their indentation, and without empty ones.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_block_of_rust_is_part_of_the_program_that_its_section_links() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let page = fs::read_to_string(guide.join("cookbook.md")).unwrap();
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), 10);
    for section in sections {
        let title = section.lines().next().unwrap();
        let (_, link) = section.split_once("](").unwrap();
        let (link, _) = link.split_once(')').unwrap();
        let program = fs::read_to_string(guide.join(link)).unwrap();
        let program = lines(&program);
        let blocks: Vec<&str> = section.split("```rust\n").skip(1).collect();
        assert!(!blocks.is_empty() && section.contains("```python\n"), "{title}: Rust and its twin");
        for block in blocks {
            let (block, _) = block.split_once("```").unwrap();
            let block = lines(block);
            let found = program.windows(block.len()).any(|part| part == block);
            assert!(found, "{title}: this is not in {link}:\n{}", block.join("\n"));
        }
    }
}

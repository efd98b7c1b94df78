//! Prints for people and for programs.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::output::{Cell, Screen, Structured, aligned};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    Json,
    Yaml,
}

impl Format {
    /// Prints a value, or for people the text that `told` makes of it.
    pub fn print(self, value: &impl Serialize, told: impl FnOnce() -> String) -> Result<()> {
        match self {
            Self::Table => print!("{}", harmless(&told())),
            Self::Json => print!("{}", Structured::Json.text(value)?),
            Self::Yaml => print!("{}", Structured::Yaml.text(value)?),
        }
        Ok(())
    }
}

/// Columns as wide as what is in them; the last one is as long as it is.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(Cell::plain).to_vec();
    let rows = rows.iter().map(|row| row.iter().map(Cell::plain).collect());
    let rows: Vec<_> = [header].into_iter().chain(rows).collect();
    aligned(&rows, Screen { colours: false, width: None })
}

/// Nobody vouches for what charts say of themselves: what would steer a terminal is taken out.
fn harmless(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// What a table shows of a text: one line, not too long.
pub fn brief(text: &str, longest: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_texts_cut() {
        let rows = [["a".to_owned(), "long text".to_owned()], ["ünï".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "TEXT"], &rows), "NAME   TEXT\na      long text\nünï\n");
        assert_eq!(brief("one\n two three", 8), "one two…");
        assert_eq!(brief("one", 3), "one");
        assert_eq!(harmless("a\u{1b}[2Jb\n"), "a[2Jb\n");
    }
}

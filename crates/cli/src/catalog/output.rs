//! Prints for people and for programs.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

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
            Self::Json => println!("{}", serde_json::to_string_pretty(value)?),
            Self::Yaml => print!("{}", serde_saphyr::to_string(value)?),
        }
        Ok(())
    }
}

/// Columns as wide as what is in them; the last one is as long as it is.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    all().map(line).collect()
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

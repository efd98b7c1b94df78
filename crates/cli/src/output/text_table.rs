//! Prints tables of plain text, or a structured format.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use super::{Cell, Screen, StructuredFormat, align_columns};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    Table,
    Json,
    Yaml,
}

impl OutputFormat {
    /// Prints a value in a structured format, or the text that `table` returns.
    pub fn print(self, value: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        match self {
            Self::Table => print!("{}", strip_control_characters(&table())),
            Self::Json => print!("{}", StructuredFormat::Json.text(value)?),
            Self::Yaml => print!("{}", StructuredFormat::Yaml.text(value)?),
        }
        Ok(())
    }
}

/// Returns a table with aligned columns.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(Cell::plain).to_vec();
    let rows = rows.iter().map(|row| row.iter().map(Cell::plain).collect());
    let rows: Vec<_> = [header].into_iter().chain(rows).collect();
    align_columns(&rows, Screen { colors: false, width: None })
}

/// Removes control characters. The metadata of charts and commits is not trusted and could contain terminal escape
/// sequences.
pub fn strip_control_characters(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

/// Joins the lines of a text and truncates it to `length` characters.
pub fn truncate(text: &str, length: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= length {
        return line;
    }
    line.chars().take(length - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_texts_are_truncated() {
        let rows = [["a".to_owned(), "long text".to_owned()], ["ünï".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "TEXT"], &rows), "NAME   TEXT\na      long text\nünï\n");
        assert_eq!(truncate("one\n two three", 8), "one two…");
        assert_eq!(truncate("one", 3), "one");
        assert_eq!(strip_control_characters("a\u{1b}[2Jb\n"), "a[2Jb\n");
    }
}

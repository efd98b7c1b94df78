//! Output of commands: colors on a terminal, columns, structured formats.

mod text_table;

use std::{fmt::Write as _, io::IsTerminal as _};

use anyhow::Result;
use chandler_view::fleet::State;
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

pub use self::text_table::{OutputFormat, strip_control_characters, table, truncate};

/// Machine-readable output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StructuredFormat {
    Json,
    Yaml,
}

impl StructuredFormat {
    pub fn text(self, value: &impl Serialize) -> Result<String> {
        Ok(match self {
            Self::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            Self::Yaml => serde_saphyr::to_string(value)?,
        })
    }
}

/// The capabilities of standard output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub colors: bool,
    /// Columns of the terminal. `None` means unlimited.
    pub width: Option<usize>,
}

impl Screen {
    /// Detects whether standard output is a terminal, its width, and `NO_COLOR`.
    pub fn detect() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
        Self {
            colors: terminal && !no_color,
            width: size.map(|size| usize::from(size.ws_col)).filter(|&width| width > 0),
        }
    }

    #[cfg(test)]
    pub fn plain(width: Option<usize>) -> Self {
        Self { colors: false, width }
    }

    pub fn paint(self, text: &str, color: Option<Color>) -> String {
        match color.filter(|_| self.colors) {
            Some(color) => format!("\x1b[{}m{text}\x1b[0m", color as u8),
            None => text.to_owned(),
        }
    }
}

/// ANSI colors by their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl Color {
    pub fn for_state(state: State) -> Self {
        match state {
            State::Ready => Self::Green,
            State::Updating | State::Removing => Self::Cyan,
            State::Waiting | State::Missing => Self::Yellow,
            State::Unreachable | State::Failed => Self::Red,
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub color: Option<Color>,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), color: None }
    }

    pub fn state(state: State) -> Self {
        Self { text: state.to_string(), color: Some(Color::for_state(state)) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

const COLUMN_GAP: usize = 3;

/// Returns the rows with aligned columns. The last column is not padded.
pub fn align_columns(rows: &[Vec<Cell>], screen: Screen) -> String {
    let widths = column_widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - cell.width() + COLUMN_GAP;
            let _ = write!(line, "{}{:padding$}", screen.paint(&cell.text, cell.color), "");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the width of each column.
pub fn column_widths(rows: &[Vec<Cell>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or_default()
    };
    (0..columns).map(widest).collect()
}

/// Splits the columns after the first into blocks, so that the first column and a block fit the width of the screen.
pub fn column_blocks(widths: &[usize], screen: Screen) -> Vec<std::ops::Range<usize>> {
    let first = widths.first().copied().unwrap_or_default();
    let limit = screen.width.unwrap_or(usize::MAX);
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    let mut used = 0;
    for (column, width) in widths.iter().enumerate().skip(1) {
        match blocks.last_mut() {
            Some(block) if used + COLUMN_GAP + width <= limit => {
                block.end = column + 1;
                used += COLUMN_GAP + width;
            }
            _ => {
                blocks.push(column..column + 1);
                used = first + COLUMN_GAP + width;
            }
        }
    }
    blocks
}

/// Returns the time since `then` in its largest unit: `45s`, `12m`, `3h`, `5d`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    duration(now.duration_since(then).as_secs().max(0))
}

/// Returns a duration in its largest unit.
pub fn duration(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit() {
        let rows = [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")];
        for (seconds, text) in rows {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn columns_are_split_into_blocks() {
        let widths = [5, 10, 10, 10];
        assert_eq!(column_blocks(&widths, Screen::plain(None)), vec![1..4; 1]);
        assert_eq!(column_blocks(&widths, Screen::plain(Some(31))), [1..3, 3..4]);
        assert_eq!(column_blocks(&widths, Screen::plain(Some(1))), [1..2, 2..3, 3..4], "at least one column");
    }

    #[test]
    fn colors_do_not_change_the_alignment() {
        let rows = vec![
            vec![Cell::state(State::Ready), Cell::plain("x")],
            vec![Cell::state(State::Unreachable), Cell::plain("y")],
        ];
        let screen = Screen { colors: true, width: None };
        assert_eq!(
            align_columns(&rows, screen),
            "\x1b[32mReady\x1b[0m         x\n\x1b[31mUnreachable\x1b[0m   y\n"
        );
    }
}

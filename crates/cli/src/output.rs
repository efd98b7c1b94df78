//! How commands print: colours on a terminal, columns, structured formats.

use std::{fmt::Write as _, io::IsTerminal as _};

use anyhow::Result;
use chandler_view::fleet::State;
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

/// Formats for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Structured {
    Json,
    Yaml,
}

impl Structured {
    pub fn text(self, value: &impl Serialize) -> Result<String> {
        Ok(match self {
            Self::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            Self::Yaml => serde_saphyr::to_string(value)?,
        })
    }
}

/// What the place that is printed to can show.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub colours: bool,
    /// None: nobody folds the lines.
    pub width: Option<usize>,
}

impl Screen {
    /// Standard output as it is.
    pub fn detect() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
        Self {
            colours: terminal && !refused,
            width: size.map(|size| usize::from(size.ws_col)).filter(|&width| width > 0),
        }
    }

    #[cfg(test)]
    pub fn plain(width: Option<usize>) -> Self {
        Self { colours: false, width }
    }

    pub fn paint(self, text: &str, colour: Option<Colour>) -> String {
        match colour.filter(|_| self.colours) {
            Some(colour) => format!("\x1b[{}m{text}\x1b[0m", colour as u8),
            None => text.to_owned(),
        }
    }
}

/// Colours by their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl Colour {
    pub fn of(state: State) -> Self {
        match state {
            State::Ready => Self::Green,
            State::Updating | State::Removing => Self::Cyan,
            State::Waiting | State::Missing => Self::Yellow,
            State::Unreachable | State::Failed => Self::Red,
        }
    }
}

/// A piece of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub colour: Option<Colour>,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: None }
    }

    pub fn state(state: State) -> Self {
        Self { text: state.to_string(), colour: Some(Colour::of(state)) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

const GAP: usize = 3;

/// Lines with aligned columns. The last column is not padded.
pub fn aligned(rows: &[Vec<Cell>], screen: Screen) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - cell.width() + GAP;
            let _ = write!(line, "{}{:padding$}", screen.paint(&cell.text, cell.colour), "");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Width of each column.
pub fn widths(rows: &[Vec<Cell>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or_default()
    };
    (0..columns).map(widest).collect()
}

/// Which columns after the first go beside each other, so that no line is wider than the screen.
pub fn blocks(widths: &[usize], screen: Screen) -> Vec<std::ops::Range<usize>> {
    let first = widths.first().copied().unwrap_or_default();
    let limit = screen.width.unwrap_or(usize::MAX);
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    let mut used = 0;
    for (column, width) in widths.iter().enumerate().skip(1) {
        match blocks.last_mut() {
            Some(block) if used + GAP + width <= limit => {
                block.end = column + 1;
                used += GAP + width;
            }
            _ => {
                blocks.push(column..column + 1);
                used = first + GAP + width;
            }
        }
    }
    blocks
}

/// How long ago, in the two largest units at most: `45s`, `12m`, `3h`, `5d`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(then).as_secs().max(0))
}

/// A length of time in its largest unit.
pub fn span(seconds: i64) -> String {
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
    fn lengths_of_time_are_short() {
        let rows = [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")];
        for (seconds, text) in rows {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn columns_are_folded_into_blocks() {
        let widths = [5, 10, 10, 10];
        assert_eq!(blocks(&widths, Screen::plain(None)), vec![1..4; 1]);
        assert_eq!(blocks(&widths, Screen::plain(Some(31))), [1..3, 3..4]);
        assert_eq!(blocks(&widths, Screen::plain(Some(1))), [1..2, 2..3, 3..4], "one at least");
    }

    #[test]
    fn colours_do_not_disturb_the_columns() {
        let rows = vec![
            vec![Cell::state(State::Ready), Cell::plain("x")],
            vec![Cell::state(State::Unreachable), Cell::plain("y")],
        ];
        let screen = Screen { colours: true, width: None };
        assert_eq!(
            aligned(&rows, screen),
            "\x1b[32mReady\x1b[0m         x\n\x1b[31mUnreachable\x1b[0m   y\n"
        );
    }
}

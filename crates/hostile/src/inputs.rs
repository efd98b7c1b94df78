//! The hostile inputs, by what they attack.

mod archives;
mod driver;
mod kinds;
mod repositories;

use std::fmt::Write as _;

use crate::{Input, Needs};

/// All hostile inputs.
pub const INPUTS: &[Input] = &concatenated();

const PARTS: [&[Input]; 4] = [repositories::INPUTS, archives::INPUTS, driver::INPUTS, kinds::INPUTS];
const COUNT: usize =
    repositories::INPUTS.len() + archives::INPUTS.len() + driver::INPUTS.len() + kinds::INPUTS.len();

const fn concatenated() -> [Input; COUNT] {
    let mut all = [repositories::INPUTS[0]; COUNT];
    let (mut part, mut count) = (0, 0);
    while part < PARTS.len() {
        let mut at = 0;
        while at < PARTS[part].len() {
            all[count] = PARTS[part][at];
            at += 1;
            count += 1;
        }
        part += 1;
    }
    all
}

/// Returns a row of the table.
const fn input(
    kind: &'static str,
    name: &'static str,
    what: &'static str,
    because: &'static str,
    run: fn(&crate::Lab) -> crate::Attempt,
) -> Input {
    Input { kind, name, what, needs: Needs::Nothing, because, run }
}

/// Returns a row of an input that needs more than this process.
const fn needing(needs: Needs, input: Input) -> Input {
    Input { needs, ..input }
}

/// Returns YAML in which a few lines stand for billions of values.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{aliases}]");
    }
    text
}

/// Returns a text that is nested deeply.
fn nested(open: &str, close: &str, depth: usize) -> String {
    [open.repeat(depth), close.repeat(depth)].concat()
}

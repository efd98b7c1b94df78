//! The hostile inputs, by what they attack.

mod api_servers;
mod archives;
mod driver;
mod kinds;
mod repositories;

use std::{fmt::Write as _, sync::LazyLock};

use crate::{Input, Needs};

/// All hostile inputs.
pub static INPUTS: LazyLock<Vec<Input>> = LazyLock::new(|| {
    [repositories::INPUTS, archives::INPUTS, driver::INPUTS, kinds::INPUTS, api_servers::INPUTS].concat()
});

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

/// Returns lists in lists.
fn nested_lists(depth: usize) -> String {
    ["[".repeat(depth), "]".repeat(depth)].concat()
}

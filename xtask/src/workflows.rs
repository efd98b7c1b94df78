//! Lints the workflows of GitHub Actions, which otherwise fail only after a push.

use std::path::Path;

use anyhow::Result;

use crate::{
    command::{command, run},
    tools,
};

/// actionlint finds the workflows itself. It also checks their scripts if shellcheck is on the PATH.
pub fn lint(root: &Path) -> Result<()> {
    let actionlint = tools::actionlint(root)?;
    run(command(root, &actionlint.to_string_lossy(), &[]))
}

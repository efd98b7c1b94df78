//! Lints the GitHub Actions workflows. Without this, errors in them show only after a push.

use std::path::Path;

use anyhow::Result;

use crate::{
    command::{command, run},
    tools,
};

/// Runs actionlint, which finds the workflows itself. It also checks their scripts if shellcheck is on the PATH.
pub fn lint(root: &Path) -> Result<()> {
    let actionlint = tools::actionlint(root)?;
    run(command(root, &actionlint.to_string_lossy(), &[]))
}

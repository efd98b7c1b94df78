//! `chandler rollback`: restores an earlier revision of releases.

use std::fmt::Write as _;

use anyhow::Result;
use chandler_api::extensions::ROLLBACK_ANNOTATION;
use chandler_view::{rollback, suspend_and_retry::Change};
use clap::Args;
use serde_json::Value;

use crate::object_argument::{ObjectArgs, name};

/// Roll back releases to an earlier revision
///
/// All releases of a placement, or the one on a cluster. They stay at the earlier revision until their spec changes, or until
/// `chandler retry`. The annotation `chandler.dev/rollback-to` of the release objects names the revision.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// The revision to restore [default: the last one that was deployed before the newest]
    #[arg(long, value_name = "NUMBER")]
    to_revision: Option<u32>,
}

pub async fn run(arguments: RollbackArgs) -> Result<()> {
    let RollbackArgs { object, to_revision } = arguments;
    let selection = object.read().await?;
    let objects = selection.objects()?;
    let changes = rollback::roll_back(&objects, &selection.fleet, to_revision)?;
    selection.write(&changes).await?;
    selection.print(&changes, || text(&changes))
}

fn text(changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        let name = name(change);
        let _ = match &change.patch {
            Some(patch) => writeln!(text, "{name} will be rolled back to revision {}.", revision(patch)),
            None => writeln!(
                text,
                "{name} has no earlier revision that was deployed, or Chandler has not reconciled it yet, so nothing is rolled \
                 back; `chandler describe {}` shows its state. Try again once it is reconciled.",
                change.object.argument()
            ),
        };
    }
    if changes.is_empty() {
        text.push_str("There is no release, so nothing is rolled back.\n");
    }
    text
}

/// Returns the revision in the annotation of a patch.
fn revision(patch: &Value) -> &str {
    let annotation = patch["metadata"]["annotations"][ROLLBACK_ANNOTATION].as_str().unwrap_or_default();
    annotation.split('.').next().unwrap_or_default()
}

//! `chandler suspend`: starts no more operations of a placement or a release.

use std::fmt::Write as _;

use anyhow::Result;
use chandler_view::changes::Change;
use clap::Args;

use crate::target::{TargetArgs, name};

/// Suspend a placement, or its release on one cluster
///
/// While it is suspended, Chandler installs, upgrades and removes nothing: operations that wait for a slot are withdrawn,
/// those that are running end, and deletions wait. Releases that are up to date stay ready. The annotation
/// `chandler.dev/suspend` is set to `true`.
#[derive(Debug, Args)]
pub struct SuspendArgs {
    #[command(flatten)]
    target: TargetArgs,
}

pub async fn run(arguments: SuspendArgs) -> Result<()> {
    let SuspendArgs { target } = arguments;
    let selection = target.read().await?;
    let target = selection.target()?;
    let changes = target.suspend();
    selection.write(&changes).await?;
    selection.print(&changes, || text(&changes, &selection.arguments(&target)))
}

fn text(changes: &[Change], arguments: &str) -> String {
    let mut text = String::new();
    for change in changes {
        let name = name(change);
        let _ = match change.patch {
            Some(_) => writeln!(text, "{name} is suspended; to continue: chandler resume {arguments}"),
            None => writeln!(text, "{name} is suspended already."),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use chandler_view::fleet::ObjectName;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_command_to_resume_is_printed() {
        let object = ObjectName {
            kind: "HelmReleaseProxy".to_owned(),
            namespace: "fleet".to_owned(),
            name: "hello-alpha".to_owned(),
        };
        let mut change = Change { object, cluster: Some("alpha".to_owned()), patch: Some(json!({})) };
        assert_eq!(
            text(&[change.clone()], "hrp/hello-alpha --namespace fleet"),
            "HelmReleaseProxy fleet/hello-alpha on cluster alpha is suspended; to continue: \
             chandler resume hrp/hello-alpha --namespace fleet\n"
        );
        change.patch = None;
        assert_eq!(
            text(&[change], ""),
            "HelmReleaseProxy fleet/hello-alpha on cluster alpha is suspended already.\n"
        );
    }
}

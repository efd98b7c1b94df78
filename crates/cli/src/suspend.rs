//! `chandler suspend`: starts no more operations of a placement or a release.

use std::fmt::Write as _;

use anyhow::Result;
use chandler_view::suspend_and_retry::Change;
use clap::Args;

use crate::object_argument::{ObjectArgs, name};

/// Suspend a placement, or its release on one cluster
///
/// While it is suspended, Chandler installs, upgrades and removes nothing: operations that wait for a slot are withdrawn,
/// those that are running end, and deletions wait. Releases that are up to date stay ready. The annotation
/// `chandler.dev/suspend` is set to `true`.
#[derive(Debug, Args)]
pub struct SuspendArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

pub async fn run(arguments: SuspendArgs) -> Result<()> {
    let SuspendArgs { object } = arguments;
    let selection = object.read().await?;
    let objects = selection.objects()?;
    let changes = objects.suspend();
    selection.write(&changes).await?;
    selection.print(&changes, || text(&changes, &selection.arguments(&objects)))
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

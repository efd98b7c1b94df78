//! `chandler rollout`: shows the rollout of a placement, pauses, resumes and aborts it, and leaves clusters out.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use chandler_api::status::{RolloutState, RolloutStatus};
use chandler_view::{fleet::Placement, rollouts, suspend_and_retry::Change};
use clap::{Args, Subcommand};

use crate::{
    object_argument::{PlacementArgs, Selection, name},
    output::table,
    retry::server_time,
};

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(2);
/// The status shows after this time that a rollout was resumed.
const RESUMED: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    Status(StatusArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Abort(AbortArgs),
    Skip(SkipArgs),
}

/// Show how far the rollout of a placement is, and what it waits for
///
/// A placement has rollouts if its AddonPolicy has `rollout`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    placement: PlacementArgs,
    /// Follow the rollout until it has ended. Exit code 1 if it has stopped or was aborted
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
}

/// Pause the rollout of a placement
///
/// No further cluster is updated. Releases that are being updated go on. The annotation `chandler.dev/rollout-paused` is set
/// to `true`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    placement: PlacementArgs,
}

/// Continue a rollout that was paused, has stopped or was aborted
///
/// Releases that have failed until now do not stop it again. They are not tried again: `chandler retry` does that. The annotation
/// `chandler.dev/rollout-resume-at` is set to the current time.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    placement: PlacementArgs,
}

/// Abort the rollout of a placement, and roll back the releases that it has updated
///
/// They stay at the earlier revision until the spec of the placement changes. The annotation `chandler.dev/rollout-abort` names
/// what no release is updated to any more.
#[derive(Debug, Args)]
pub struct AbortArgs {
    #[command(flatten)]
    placement: PlacementArgs,
}

/// Leave clusters out of the rollouts of a placement
///
/// They keep what they have, and their failures do not count. The annotation `chandler.dev/rollout-skip` names them.
#[derive(Debug, Args)]
pub struct SkipArgs {
    #[command(flatten)]
    placement: PlacementArgs,
    /// A cluster to leave out; repeat it for several
    #[arg(long, required_unless_present = "none")]
    cluster: Vec<String>,
    /// Include all clusters again
    #[arg(long, conflicts_with = "cluster")]
    none: bool,
}

pub async fn run(command: RolloutCommand) -> Result<()> {
    match command {
        RolloutCommand::Status(StatusArgs { placement, watch: false }) => {
            let selection = placement.read().await?;
            let status = rollouts::rollout(selection.placement()?)?;
            selection.print_value(status, || text(status))
        }
        RolloutCommand::Status(StatusArgs { placement, watch: true }) => watch(placement).await,
        RolloutCommand::Pause(PauseArgs { placement }) => {
            let selection = placement.read().await?;
            let change = rollouts::pause(selection.placement()?)?;
            apply(&selection, change, "is paused", "is paused already").await
        }
        RolloutCommand::Resume(ResumeArgs { placement }) => {
            let selection = placement.read().await?;
            let now = server_time(&selection.client).await;
            let change = rollouts::resume(&selection.fleet, selection.placement()?, now)?;
            apply(&selection, change, "is resumed", "is resumed").await
        }
        RolloutCommand::Abort(AbortArgs { placement }) => {
            let selection = placement.read().await?;
            let change = rollouts::abort(selection.placement()?)?;
            apply(
                &selection,
                change,
                "is aborted; the releases that it has updated will be rolled back",
                "is aborted already",
            )
            .await
        }
        RolloutCommand::Skip(SkipArgs { placement, cluster, none }) => {
            let selection = placement.read().await?;
            let placement = selection.placement()?;
            let change = if none {
                rollouts::skip_none(placement)
            } else {
                rollouts::skip(&selection.fleet, placement, &cluster)?
            };
            let done = if none {
                "includes all clusters".to_owned()
            } else {
                format!("skips {}", cluster.join(", "))
            };
            apply(&selection, change, &done, &format!("{done} already")).await
        }
    }
}

async fn apply(selection: &Selection, change: Change, done: &str, unchanged: &str) -> Result<()> {
    let changes = [change];
    selection.write(&changes).await?;
    selection.print(&changes, || {
        let [change] = &changes;
        let what = if change.patch.is_some() { done } else { unchanged };
        format!("The rollout of {} {what}.\n", name(change))
    })
}

/// Prints a line whenever the rollout changes, or updates the line on a terminal.
async fn watch(arguments: PlacementArgs) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut last = String::new();
    let mut held_since = None;
    loop {
        let selection = arguments.clone().read().await?;
        let placement = selection.placement()?;
        let status = rollouts::rollout(placement)?;
        let line = format!("{}: {}", status.state, status.message);
        if line != last {
            if is_terminal && !last.is_empty() {
                // One line up, and erase it.
                print!("\x1b[1A\x1b[2K");
            }
            println!("{line}");
            last = line;
        }
        match status.state {
            RolloutState::Done if is_observed(placement) => return Ok(()),
            RolloutState::Stopped => bail!(
                "the rollout of {} has stopped; run `chandler rollout resume`, `skip` or `abort`",
                placement.object
            ),
            RolloutState::Aborted => bail!("the rollout of {} was aborted", placement.object),
            // No user has paused it: its policy is invalid, or the status does not show yet that a user has resumed it.
            RolloutState::Paused if !placement.rollout.paused && is_observed(placement) => {
                if held_since.get_or_insert_with(Instant::now).elapsed() > RESUMED {
                    bail!("the rollout of {} does not go on: {}", placement.object, status.message)
                }
            }
            _ => held_since = None,
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns whether the status describes the current spec.
fn is_observed(placement: &Placement) -> bool {
    placement.generation == placement.status.observed_generation
}

fn text(status: &RolloutStatus) -> String {
    let wave = status.wave.as_ref().map(|wave| format!("{wave} ({}/{})", status.wave_index, status.waves));
    let numbers = [
        status.total,
        status.updated,
        status.updating,
        status.waiting,
        status.failed,
        status.unavailable,
        status.skipped,
    ];
    let [total, updated, updating, waiting, failed, unavailable, skipped] =
        numbers.map(|number| number.to_string());
    let row = [
        status.state.to_string(),
        wave.unwrap_or_else(|| "-".to_owned()),
        total,
        updated,
        updating,
        waiting,
        failed,
        unavailable,
        skipped,
    ];
    let header =
        ["STATE", "WAVE", "CLUSTERS", "UPDATED", "UPDATING", "WAITING", "FAILED", "UNAVAILABLE", "SKIPPED"];
    format!("{}\n{}\n", table(header, &[row]), status.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_and_what_it_waits_for_are_shown() {
        let status = RolloutStatus {
            state: RolloutState::Soaking,
            wave: Some("canary".to_owned()),
            wave_index: 1,
            waves: 3,
            total: 40,
            updated: 4,
            waiting: 36,
            message: "the next wave waits".to_owned(),
            ..RolloutStatus::default()
        };
        let expected = "\
STATE     WAVE           CLUSTERS   UPDATED   UPDATING   WAITING   FAILED   UNAVAILABLE   SKIPPED
Soaking   canary (1/3)   40         4         0          36        0        0             0

the next wave waits
";
        assert_eq!(text(&status), expected);
    }
}

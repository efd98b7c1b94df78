//! `chandler retry`: tries failed releases again.

use std::fmt::Write as _;

use anyhow::Result;
use chandler_view::suspend_and_retry::{AnnotatedObjects, Change};
use clap::Args;
use http::header::DATE;
use jiff::{Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};

use crate::object_argument::{ObjectArgs, name};

/// Try failed releases again
///
/// All failed releases of a placement, or the one on a cluster, are tried again at once: those that wait for their next
/// attempt, those whose retries are exhausted, and those that were rolled back. The retries of their policy start from zero.
/// The annotation `chandler.dev/retry-at` of the release objects is set to the current time.
#[derive(Debug, Args)]
pub struct RetryArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

pub async fn run(arguments: RetryArgs) -> Result<()> {
    let RetryArgs { object } = arguments;
    let selection = object.read().await?;
    let objects = selection.objects()?;
    let changes = objects.retry(&selection.fleet, server_time(&selection.client).await);
    selection.write(&changes).await?;
    selection.print(&changes, || text(&objects, &changes))
}

/// Returns the time of the API server: if the clock of the user is fast, later failures would not count until it is reached.
/// Returns the time of the user if the API server does not send it.
pub async fn server_time(client: &Client) -> Timestamp {
    let request = http::Request::get("/version").body(Body::empty());
    let response = match request {
        Ok(request) => client.send(request).await.ok(),
        Err(_) => None,
    };
    let date = response.and_then(|response| parse_date(response.headers().get(DATE)?.to_str().ok()?));
    date.unwrap_or_else(Timestamp::now)
}

/// Parses the header `Date` of a response.
fn parse_date(text: &str) -> Option<Timestamp> {
    rfc2822::parse(text).ok().map(|date| date.timestamp())
}

fn text(objects: &AnnotatedObjects<'_>, changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        let name = name(change);
        let _ = match change.patch {
            Some(_) => writeln!(text, "{name} is tried again."),
            None => writeln!(
                text,
                "{name} has not failed, so nothing is tried again; `chandler describe {}` shows its state.",
                change.object.argument()
            ),
        };
    }
    if let (AnnotatedObjects::Placement(placement), true) = (objects, changes.is_empty()) {
        let _ = writeln!(
            text,
            "No operation of {} has failed, so nothing is tried again; `chandler describe {}` shows releases that are \
             deployed and not healthy.",
            placement.object,
            placement.object.argument()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{fleet, placement};

    use super::*;

    #[test]
    fn dates_of_responses_are_parsed() {
        let date = parse_date("Thu, 01 Jan 2026 00:05:00 GMT").unwrap();
        assert_eq!(date.to_string(), "2026-01-01T00:05:00Z");
        assert_eq!(parse_date("yesterday"), None);
    }

    #[test]
    fn the_releases_that_are_retried_are_named() {
        let fleet = fleet();
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let faulty = AnnotatedObjects::Placement(&fleet.placements[1]);
        assert_eq!(
            text(&faulty, &faulty.retry(&fleet, now)),
            "HelmReleaseProxy fleet/faulty-alpha on cluster alpha is tried again.\n"
        );
        let other = placement("other", &[]);
        let ready = AnnotatedObjects::Placement(&other);
        assert_eq!(
            text(&ready, &ready.retry(&fleet, now)),
            "No operation of HelmChartProxy fleet/other has failed, so nothing is tried again; `chandler describe \
             hcp/other` shows releases that are deployed and not healthy.\n"
        );
    }
}

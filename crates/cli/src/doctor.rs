//! `chandler doctor`: what is wrong with a management cluster, and what to do about it.

mod caaph;
mod cluster_api;
mod finding;
mod hooks;
mod impersonation;
mod kinds;
mod leader;
mod releases;
mod rights;

use anyhow::{Context as _, Result, bail};
use chandler_view::fleet::Reader;
use clap::Args;
use jiff::Timestamp;
use kube::Client;

use self::finding::{Finding, Report, Verdict};
use crate::{
    connection::Connection,
    output::{Screen, Structured},
    progress::Progress,
};

/// Oldest Kubernetes minor that is supported.
const OLDEST: (u32, u32) = (1, 33);

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only releases and managers of this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    manager: ManagerPlace,
    /// For programs instead of people
    #[arg(short, long, value_enum)]
    output: Option<Structured>,
}

/// Where the manager lives.
#[derive(Clone, Debug, Args)]
pub struct ManagerPlace {
    /// Namespace of the manager
    #[arg(long, default_value = "chandler-system")]
    pub manager_namespace: String,
    /// ServiceAccount of the manager
    #[arg(long, default_value = "chandler-manager")]
    pub service_account: String,
}

pub async fn run(arguments: DoctorArgs) -> Result<()> {
    let DoctorArgs { connection, namespace, manager, output } = arguments;
    let client = connection.client().await?;
    let report = examine(&client, namespace, &manager).await?;
    let text = match output {
        Some(format) => format.text(&report)?,
        None => report.text(Screen::detect()),
    };
    print!("{text}");
    match report.problems {
        0 => Ok(()),
        1 => bail!("one problem was found"),
        problems => bail!("{problems} problems were found"),
    }
}

/// All checks. What cannot be looked at is told as such; only an API server that does not answer ends it.
pub async fn examine(client: &Client, namespace: Option<String>, manager: &ManagerPlace) -> Result<Report> {
    let version =
        client.apiserver_version().await.context("asking the management cluster for its version")?;
    let now = Timestamp::now();
    let mut findings = vec![kubernetes(&version.git_version)];
    findings.extend(told("kinds", kinds::check(client).await));
    findings.extend(told("rights", rights::check(client, manager, namespace.as_deref()).await));
    findings.extend(told("impersonation", impersonation::check(client, manager, namespace.as_deref()).await));
    findings.extend(told("cluster-api", cluster_api::check(client).await));
    findings.extend(told("caaph", caaph::check(client).await));
    let leases = leader::check(client, &manager.manager_namespace, namespace.as_deref(), now).await;
    let leases = told("leader", leases);
    let acts = leases.iter().any(|found| found.verdict == Verdict::Ok);
    findings.extend(leases);
    findings.extend(told("hooks", hooks::check(client, namespace.as_deref(), acts).await));
    let fleet = Reader::new(client.clone(), namespace).fleet(&Progress::start()).await;
    findings.extend(told("releases", fleet.map(|fleet| releases::judge(&fleet, now)).map_err(Into::into)));
    Ok(Report::of(findings))
}

fn told(check: &'static str, findings: Result<Vec<Finding>>) -> Vec<Finding> {
    findings.unwrap_or_else(|error| vec![Finding::unknown(check, format!("cannot look: {error:#}"))])
}

fn kubernetes(version: &str) -> Finding {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST => Finding::problem(
            "kubernetes",
            format!("the management cluster runs {version}"),
            format!("upgrade it to {}.{} or newer", OLDEST.0, OLDEST.1),
        ),
        _ => Finding::ok("kubernetes", format!("the management cluster runs {version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kubernetes_is_a_problem() {
        assert_eq!(kubernetes("v1.32.9").verdict, Verdict::Problem);
        assert_eq!(kubernetes("v1.33.0").verdict, Verdict::Ok);
        assert_eq!(kubernetes("v1.34.4-gke.1").verdict, Verdict::Ok);
    }
}

//! `chandler doctor`: checks a management cluster for problems.

mod admission;
mod caaph;
mod cluster_api;
mod finding;
mod hook_callers;
mod hooks;
mod impersonation;
mod kinds;
mod leader;
mod login_hosts;
mod logins;
mod policies;
mod releases;
mod rights;
mod tenancies;
mod tunnel;
mod unused_rights;

use std::fmt::Debug;

use anyhow::{Context as _, Result, bail};
use chandler_view::fleet::FleetReader;
use clap::Args;
use jiff::Timestamp;
use kube::{Api, Client, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use self::finding::{Finding, Report, Severity};
use crate::{
    connection::Connection,
    output::{Screen, StructuredFormat},
    progress::Progress,
};

/// Oldest supported minor version of Kubernetes.
const OLDEST_KUBERNETES: (u32, u32) = (1, 33);

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    connection: Connection,
    /// Check only releases and managers of this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    manager: ManagerIdentity,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

/// The ServiceAccount of the manager.
#[derive(Clone, Debug, Args)]
pub struct ManagerIdentity {
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
    let report = run_checks(&client, namespace, &manager).await?;
    let text = match output {
        Some(format) => format.text(&report)?,
        None => report.text(Screen::detect()),
    };
    print!("{text}");
    match report.problems {
        0 => Ok(()),
        1 => bail!("found 1 problem"),
        problems => bail!("found {problems} problems"),
    }
}

/// Runs all checks. A check that fails becomes a finding of severity `Unknown`. Fails only if the API server is
/// unavailable.
pub async fn run_checks(
    client: &Client,
    namespace: Option<String>,
    manager: &ManagerIdentity,
) -> Result<Report> {
    let version =
        client.apiserver_version().await.context("reading the version of the management cluster")?;
    let now = Timestamp::now();
    let mut findings = vec![kubernetes(&version.git_version)];
    findings.extend(findings_of("kinds", kinds::check(client).await));
    findings.extend(findings_of("rights", rights::check(client, manager, namespace.as_deref()).await));
    findings.extend(findings_of(
        "impersonation",
        impersonation::check(client, manager, namespace.as_deref()).await,
    ));
    findings.extend(findings_of("login-hosts", login_hosts::check(client, namespace.as_deref()).await));
    findings.extend(findings_of("tenancies", tenancies::check(client).await));
    findings.extend(findings_of("admission", admission::check(client, manager).await));
    findings.extend(findings_of("unused-rights", unused_rights::check(client, manager).await));
    findings.extend(findings_of("cluster-api", cluster_api::check(client).await));
    findings.extend(findings_of("caaph", caaph::check(client).await));
    let leases = leader::check(client, &manager.manager_namespace, namespace.as_deref(), now).await;
    let leases = findings_of("leader", leases);
    let has_leader = leases.iter().any(|finding| finding.severity == Severity::Ok);
    findings.extend(leases);
    findings.extend(findings_of("hooks", hooks::check(client, namespace.as_deref(), has_leader).await));
    findings.extend(findings_of("hooks", hook_callers::check(client, &manager.manager_namespace).await));
    findings.extend(findings_of(
        "tunnel",
        tunnel::check(client, &manager.manager_namespace, namespace.as_deref(), now).await,
    ));
    findings.extend(findings_of("logins", logins::check(client, namespace.as_deref()).await));
    let fleet = FleetReader::new(client.clone(), namespace).read(&Progress::start()).await;
    let evaluate = |fleet| [policies::evaluate(&fleet), releases::evaluate(&fleet, now)].concat();
    findings.extend(findings_of("releases", fleet.map(evaluate).map_err(Into::into)));
    Ok(Report::new(findings))
}

fn findings_of(check: &'static str, result: Result<Vec<Finding>>) -> Vec<Finding> {
    result.unwrap_or_else(|error| vec![Finding::unknown(check, format!("check failed: {error:#}"))])
}

/// Returns the API of a kind in a namespace. `None` means all namespaces.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Lists the objects of a kind. Returns none if the API server does not serve the kind.
async fn list<K: Clone + Debug + DeserializeOwned>(api: Api<K>, kinds: &str) -> Result<Vec<K>> {
    match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
        listed => Ok(listed.with_context(|| format!("listing {kinds}"))?.items),
    }
}

fn kubernetes(version: &str) -> Finding {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KUBERNETES => Finding::problem(
            "kubernetes",
            format!("the management cluster runs {version}"),
            format!("upgrade it to {}.{} or newer", OLDEST_KUBERNETES.0, OLDEST_KUBERNETES.1),
        ),
        _ => Finding::ok("kubernetes", format!("the management cluster runs {version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kubernetes_is_a_problem() {
        assert_eq!(kubernetes("v1.32.9").severity, Severity::Problem);
        assert_eq!(kubernetes("v1.33.0").severity, Severity::Ok);
        assert_eq!(kubernetes("v1.34.4-gke.1").severity, Severity::Ok);
    }
}

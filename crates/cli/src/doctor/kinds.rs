//! Checks whether Chandler's CRDs are installed and match this version of Chandler.

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _};

use super::Finding;

const CHECK: &str = "kinds";
const INSTALL: &str = "`chandler crds | kubectl apply --server-side -f -`";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    let expected = chandler_api::crds();
    for crd in &expected {
        let name = crd.name_any();
        let actual = crds.get_opt(&name).await.with_context(|| format!("reading the CRD {name}"))?;
        findings.extend(evaluate(crd, actual.as_ref()));
    }
    if findings.is_empty() {
        findings
            .push(Finding::ok(CHECK, format!("all {} CRDs are installed and up to date", expected.len())));
    }
    Ok(findings)
}

fn evaluate(
    expected: &CustomResourceDefinition,
    actual: Option<&CustomResourceDefinition>,
) -> Option<Finding> {
    let name = expected.name_any();
    let Some(actual) = actual else {
        return Some(Finding::problem(CHECK, format!("CRD {name} is not installed"), INSTALL));
    };
    let mut conditions = actual.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !conditions.any(|condition| condition.type_ == "Established" && condition.status == "True") {
        let next_step = format!("check the conditions with `kubectl describe crd {name}`");
        return Some(Finding::problem(CHECK, format!("CRD {name} is not established"), next_step));
    }
    if actual.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook") {
        return Some(Finding::problem(
            CHECK,
            format!("CRD {name} has a conversion webhook, which Chandler does not serve"),
            "`chandler crds | kubectl apply -f -`, without --server-side; see the guide to migrate from CAAPH",
        ));
    }
    differs(expected, actual).then(|| {
        Finding::warning(
            CHECK,
            format!(
                "CRD {name} differs from the one of this version of Chandler ({})",
                env!("CARGO_PKG_VERSION")
            ),
            format!("if the manager has the same version, run {INSTALL}"),
        )
    })
}

/// Compares only served versions and schemas, because the API server adds defaults to other fields.
fn differs(expected: &CustomResourceDefinition, actual: &CustomResourceDefinition) -> bool {
    expected.spec.versions.iter().any(|version| {
        let same = actual.spec.versions.iter().find(|other| other.name == version.name && other.served);
        same.is_none_or(|other| other.schema != version.schema)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn severity_depends_on_the_crd() {
        let expected = chandler_api::crds().remove(0);
        let severity = |actual: Option<&CustomResourceDefinition>| {
            evaluate(&expected, actual).map(|finding| finding.severity)
        };
        assert_eq!(severity(None), Some(Severity::Problem));
        assert_eq!(severity(Some(&expected)), Some(Severity::Problem), "not established yet");
        let mut actual = expected.clone();
        actual.status = serde_json::from_value(json!({"conditions": [
            {"type": "Established", "status": "True"}
        ]}))
        .unwrap();
        assert_eq!(severity(Some(&actual)), None);
        let mut other = actual.clone();
        other.spec.versions[0].schema = None;
        assert_eq!(severity(Some(&other)), Some(Severity::Warning));
        let conversion = json!({"strategy": "Webhook"});
        actual.spec.conversion = Some(serde_json::from_value(conversion).unwrap());
        assert_eq!(severity(Some(&actual)), Some(Severity::Problem));
    }
}

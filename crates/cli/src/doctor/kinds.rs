//! Whether the definitions of the kinds are there, and are those that this program knows.

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _};

use super::Finding;

const CHECK: &str = "kinds";
const INSTALL: &str = "`chandler crds | kubectl apply --server-side -f -`";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    let ours = chandler_api::crds();
    for definition in &ours {
        let name = definition.name_any();
        let there =
            definitions.get_opt(&name).await.with_context(|| format!("reading the definition {name}"))?;
        findings.extend(judge(definition, there.as_ref()));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("all {} definitions are there and up to date", ours.len())));
    }
    Ok(findings)
}

fn judge(ours: &CustomResourceDefinition, there: Option<&CustomResourceDefinition>) -> Option<Finding> {
    let name = ours.name_any();
    let Some(there) = there else {
        return Some(Finding::problem(CHECK, format!("{name} is not defined"), INSTALL));
    };
    let established = there.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !established.into_iter().any(|said| said.type_ == "Established" && said.status == "True") {
        let next = format!("look at `kubectl describe crd {name}`");
        return Some(Finding::problem(CHECK, format!("{name} is not served"), next));
    }
    if there.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook") {
        return Some(Finding::problem(
            CHECK,
            format!("{name} asks a conversion webhook, which nobody answers"),
            "`chandler crds | kubectl apply -f -`, client-side: see the guide about moving from the add-on provider \
             for Helm",
        ));
    }
    differs(ours, there).then(|| {
        Finding::warning(
            CHECK,
            format!("{name} is not as this chandler ({}) defines it", env!("CARGO_PKG_VERSION")),
            format!("if the manager is of this version: {INSTALL}"),
        )
    })
}

/// What the API server adds by itself does not count.
fn differs(ours: &CustomResourceDefinition, there: &CustomResourceDefinition) -> bool {
    ours.spec.versions.iter().any(|version| {
        let same = there.spec.versions.iter().find(|other| other.name == version.name && other.served);
        same.is_none_or(|other| other.schema != version.schema)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn absent_unserved_webhooks_other_and_right() {
        let ours = chandler_api::crds().remove(0);
        let verdict =
            |there: Option<&CustomResourceDefinition>| judge(&ours, there).map(|found| found.verdict);
        assert_eq!(verdict(None), Some(Verdict::Problem));
        assert_eq!(verdict(Some(&ours)), Some(Verdict::Problem), "not served yet");
        let mut there = ours.clone();
        there.status = serde_json::from_value(json!({"conditions": [
            {"type": "Established", "status": "True"}
        ]}))
        .unwrap();
        assert_eq!(verdict(Some(&there)), None);
        let mut other = there.clone();
        other.spec.versions[0].schema = None;
        assert_eq!(verdict(Some(&other)), Some(Verdict::Warning));
        let conversion = json!({"strategy": "Webhook"});
        there.spec.conversion = Some(serde_json::from_value(conversion).unwrap());
        assert_eq!(verdict(Some(&there)), Some(Verdict::Problem));
    }
}

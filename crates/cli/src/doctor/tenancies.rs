//! Checks whether AddonTenancies can be read: while one cannot, nothing new is started.

use anyhow::{Context as _, Result};
use chandler_api::extensions::AddonTenancy;
use chandler_core::tenancy::{Tenancies, read_spec};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::Finding;

const CHECK: &str = "tenancies";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<AddonTenancy>(&()));
    match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
        listed => Ok(evaluate(&listed.context("listing AddonTenancies")?.items)),
    }
}

fn evaluate(objects: &[DynamicObject]) -> Vec<Finding> {
    let specs = objects.iter().map(|object| (object.name_any(), read_spec(&object.data["spec"])));
    let tenancies = Tenancies::new(specs);
    if tenancies.is_empty() {
        return Vec::new();
    }
    let problem = |unreadable: &str| {
        let next_step =
            "correct or delete it: until then nothing new is started in the namespaces that it may be about";
        Finding::problem(CHECK, format!("{unreadable} cannot be read"), next_step)
    };
    let mut findings: Vec<_> = tenancies.unreadable().map(problem).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{} AddonTenancies restrict namespaces", objects.len())));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_tenancy_that_cannot_be_read_is_a_problem() {
        let tenancy = |name: &str, namespaces: Value| {
            let mut object = DynamicObject::new(name, &ApiResource::erase::<AddonTenancy>(&()));
            object.data = json!({"spec": {"namespaces": namespaces}});
            object
        };
        assert_eq!(evaluate(&[]), []);
        let good = tenancy("good", json!({"names": ["team"]}));
        assert_eq!(evaluate(std::slice::from_ref(&good))[0].severity, Severity::Ok);
        let odd = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        let found = evaluate(&[good, tenancy("odd", odd)]);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Problem));
        assert!(found[0].message.starts_with("AddonTenancy odd"), "{:?}", found[0]);
    }
}

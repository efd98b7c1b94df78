//! Plans what placements would change on clusters: reads the management cluster, and the objects of files as the API server would
//! store them.

mod dry_run;
mod files;
mod reader;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use chandler_api::extensions::{PlacementKindName, Scope};
use chandler_controller::{PlanTarget, Planner, PlannerObjects, PlannerOptions};
use chandler_core::{
    change_plan::{ChangePlan, ObjectPlan, PlanPart},
    placement::PlacementKind,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt as _, api::DynamicObject};
use serde::de::DeserializeOwned;

use self::{
    dry_run::DryRun,
    files::{FileKind, FileObjects},
    reader::{ObjectReader, ReadObjects},
};
use crate::Progress;

/// Nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{hint}: listing {objects}")]
    List { hint: &'static str, objects: String, source: Box<kube::Error> },
    #[error("the files contain no HelmChartProxy and no ExtensionInstance")]
    NoPlacements,
    #[error("the files contain {0} more than once")]
    Duplicate(String),
}

/// What follows a plan while it is made.
#[derive(Clone, Copy)]
pub struct Observers<'a> {
    pub progress: &'a dyn Progress,
    /// Is called with each part of the plan, in order, as soon as it and those before it are known.
    pub on_part: &'a (dyn Fn(PlanPart<'_>) + Sync),
}

impl Observers<'_> {
    fn report(&self, object: &ObjectPlan) {
        object.parts().for_each(self.on_part);
    }
}

/// Plans the placements of files, with the policies, Extensions, catalogs and Sources of the files. Other objects are ignored.
pub async fn plan_files(
    client: &Client,
    objects: Vec<DynamicObject>,
    options: PlannerOptions,
    observers: Observers<'_>,
) -> Result<ChangePlan, Error> {
    let progress = observers.progress;
    let FileObjects { placements, referenced, ignored } = FileObjects::new(objects)?;
    let namespaces: BTreeSet<_> = placements.iter().map(|(_, object)| namespace_of(object)).collect();
    let with_extensions = placements.iter().any(|(kind, _)| *kind == PlacementKindName::ExtensionInstance);
    let platform = options.platform.namespace.clone();
    let reader = ObjectReader::new(client, &namespaces, &platform, progress);
    let mut read = reader.read(with_extensions).await?;
    let dry_run = DryRun::new(client);
    let mut failed = Vec::new();
    for (kind, object) in referenced {
        progress.report(format!("validating {kind} {}", object.name_any()));
        if let Err(error) = dry_run.add_to(&mut read.objects, kind, &object).await {
            failed.push(failed_plan(kind, &object, &error));
        }
    }
    let mut targets = Vec::new();
    for (kind, object) in placements {
        progress.report(format!("validating {kind} {}", object.name_any()));
        match dry_run.add_to(&mut read.objects, FileKind::Placement(kind), &object).await {
            Ok(()) => targets.push(target(kind, &object)),
            Err(error) => failed.push(failed_plan(FileKind::Placement(kind), &object, &error)),
        }
    }
    for plan in &failed {
        observers.report(plan);
    }
    let plan = plan_all(client, options, &namespaces, read, targets, observers).await;
    let objects = failed.into_iter().chain(plan.objects).collect();
    let ignored = ignored.into_iter().chain(plan.ignored).collect();
    Ok(ChangePlan { ignored, ..ChangePlan::new(objects) })
}

/// Plans an object as it is stored.
pub async fn plan_stored(
    client: &Client,
    target: PlanTarget,
    options: PlannerOptions,
    observers: Observers<'_>,
) -> Result<ChangePlan, Error> {
    let namespaces = BTreeSet::from([target.namespace.clone()]);
    let platform = options.platform.namespace.clone();
    let reader = ObjectReader::new(client, &namespaces, &platform, observers.progress);
    let read = reader.read(target.kind == PlacementKindName::ExtensionInstance).await?;
    Ok(plan_all(client, options, &namespaces, read, vec![target], observers).await)
}

async fn plan_all(
    client: &Client,
    options: PlannerOptions,
    namespaces: &BTreeSet<String>,
    read: ReadObjects,
    targets: Vec<PlanTarget>,
    observers: Observers<'_>,
) -> ChangePlan {
    let (unknown, targets): (Vec<_>, Vec<_>) = targets
        .into_iter()
        .map(|target| (platform_error(&read, &target), target))
        .partition(|(error, _)| error.is_some());
    let unknown = unknown.into_iter().map(|(error, target)| ObjectPlan {
        kind: target.kind.to_string(),
        namespace: target.namespace,
        name: target.name,
        error,
        clusters: Vec::new(),
    });
    let unknown: Vec<_> = unknown.collect();
    for plan in &unknown {
        observers.report(plan);
    }
    let targets: Vec<_> = targets.into_iter().map(|(_, target)| target).collect();
    let ReadObjects { objects, undecodable, .. } = read;
    let only = namespaces.first().filter(|_| namespaces.len() == 1);
    let planner = Planner::new(client, PlannerOptions { namespace: only.cloned(), ..options }, objects);
    let done = AtomicUsize::new(0);
    let Observers { progress, on_part } = observers;
    let on_part = |part: PlanPart<'_>| {
        if let PlanPart::Cluster(_) = part {
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress.report(format!("planned: {count} clusters"));
        }
        on_part(part);
    };
    let on_target = |target: &PlanTarget| progress.report(format!("planning {}", target.name));
    let plans = Box::pin(planner.plan(&targets, &on_target, &on_part)).await;
    ChangePlan { ignored: undecodable, ..ChangePlan::new(unknown.into_iter().chain(plans).collect()) }
}

/// Returns why an object cannot be planned, if it needs objects of the platform that cannot be listed.
fn platform_error(read: &ReadObjects, target: &PlanTarget) -> Option<String> {
    let is_it = |object: &ObjectMeta| {
        object.name.as_deref() == Some(&target.name) && object.namespace.as_deref() == Some(&target.namespace)
    };
    let policy = match target.kind {
        PlacementKindName::HelmChartProxy => {
            let placement = read.objects.charts.iter().find(|one| is_it(&one.metadata));
            placement.map(PlacementKind::policy)
        }
        PlacementKindName::ExtensionInstance => {
            let placement = read.objects.instances.iter().find(|one| is_it(&one.metadata));
            placement.map(PlacementKind::policy)
        }
    };
    // The policy of a release object is that of its placement, which is not looked up here.
    let is_of_platform = match policy.filter(|_| !target.is_release) {
        Some(policy) => policy.is_some_and(|policy| policy.scope == Scope::Platform),
        None => target.is_release,
    };
    let policies = read.platform_policies.as_ref().filter(|_| is_of_platform);
    let extensions =
        read.platform_extensions.as_ref().filter(|_| target.kind == PlacementKindName::ExtensionInstance);
    policies.or(extensions).map(|error| match error {
        Error::List { source, .. } => format!("{error}: {source}"),
        error => error.to_string(),
    })
}

impl DryRun<'_> {
    /// Replaces a listed object by the one of a file.
    async fn add_to(
        &self,
        listed: &mut PlannerObjects,
        kind: FileKind,
        object: &DynamicObject,
    ) -> Result<(), dry_run::Error> {
        match kind {
            FileKind::Placement(PlacementKindName::HelmChartProxy) => {
                replace(&mut listed.charts, self.stored(kind, object).await?);
            }
            FileKind::Placement(PlacementKindName::ExtensionInstance) => {
                replace(&mut listed.instances, self.stored(kind, object).await?);
            }
            FileKind::Policy => replace(&mut listed.policies, self.stored(kind, object).await?),
            FileKind::Extension => replace(&mut listed.extensions, self.stored(kind, object).await?),
            FileKind::Catalog => replace(&mut listed.catalogs, self.stored(kind, object).await?),
            FileKind::Source => replace(&mut listed.sources, self.stored(kind, object).await?),
        }
        Ok(())
    }
}

/// Replaces the object with the same namespace and name, or adds it.
fn replace<K: kube::Resource<DynamicType = ()> + DeserializeOwned>(all: &mut Vec<K>, object: K) {
    let identity = |one: &K| (one.meta().namespace.clone(), one.meta().name.clone());
    all.retain(|one| identity(one) != identity(&object));
    all.push(object);
}

fn target(kind: PlacementKindName, object: &DynamicObject) -> PlanTarget {
    PlanTarget {
        kind,
        is_release: false,
        namespace: namespace_of(object),
        name: object.name_any(),
        cluster: None,
    }
}

fn namespace_of(object: &DynamicObject) -> String {
    object.namespace().unwrap_or_default()
}

/// Returns the plan of an object that the API server does not accept.
fn failed_plan(kind: FileKind, object: &DynamicObject, error: &dry_run::Error) -> ObjectPlan {
    ObjectPlan {
        kind: kind.to_string(),
        namespace: namespace_of(object),
        name: object.name_any(),
        error: Some(error.to_string()),
        clusters: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_the_platform_that_fails_is_an_error_of_the_placements_that_need_it() {
        use PlacementKindName::{ExtensionInstance, HelmChartProxy};
        let chart = |name: &str, policy: Option<&str>| {
            let annotations = policy.map(|policy| json!({"chandler.dev/policy": policy}));
            serde_json::from_value(json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": {"name": name, "namespace": "fleet", "annotations": annotations},
                "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
            }))
            .unwrap()
        };
        let mut read = ReadObjects { platform_policies: Some(Error::NoPlacements), ..ReadObjects::default() };
        read.objects.charts =
            vec![chart("none", None), chart("own", Some("safe")), chart("platform", Some("platform/safe"))];
        let target = |kind, name: &str| PlanTarget {
            kind,
            is_release: false,
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            cluster: None,
        };
        let fails =
            |read: &ReadObjects, kind, name: &str| platform_error(read, &target(kind, name)).is_some();
        for (name, expected) in [("none", false), ("own", false), ("platform", true)] {
            assert_eq!(fails(&read, HelmChartProxy, name), expected, "{name}");
        }
        assert!(!fails(&read, ExtensionInstance, "hello"));
        let read = ReadObjects { platform_extensions: Some(Error::NoPlacements), ..ReadObjects::default() };
        assert!(fails(&read, ExtensionInstance, "hello") && !fails(&read, HelmChartProxy, "none"));
    }
}

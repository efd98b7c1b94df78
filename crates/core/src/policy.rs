//! AddonPolicies: what applies to the releases of a placement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use chandler_api::extensions::{
    AddonPolicySpec, CrdsPolicy, DriftMode, DriftPolicy, FieldConflicts, ON_CLUSTER_DELETE_ANNOTATION,
    OnClusterDelete, OnFailure, OnUnselect, POLICY_ANNOTATION, PlacementKindName, PlacementReference,
    Reference, Remediation, RolloutPolicy, SUSPEND_ANNOTATION, Scope, TestPolicy, UNSELECTED_ANNOTATION,
    ValuesFrom,
};
use kube_core::{Resource, ResourceExt as _};

use crate::health::HealthChecks;

/// Prefix of the name of a policy in the platform namespace, in the annotation of a HelmChartProxy.
const PLATFORM_PREFIX: &str = "platform/";

/// The options of a placement that win over its policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOverrides {
    pub atomic: bool,
    pub skip_crds: bool,
    pub force: bool,
    pub values: ValuesOwner,
}

/// What says where the values of a placement come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValuesOwner {
    /// The policy may add sources.
    #[default]
    Policy,
    /// The placement has sources of its own, so those of a policy do not count.
    Placement,
}

/// What applies to the releases of one placement: its policy, merged with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasePolicy {
    /// Whether no operation is started.
    pub suspend: bool,
    /// What happens after a failure. `None` means that it is retried until it succeeds.
    pub remediation: Option<Remediation>,
    /// Whether the health of the objects is observed.
    pub health: bool,
    /// What users say about the health of objects of some kinds.
    pub checks: HealthChecks,
    pub conflicts: FieldConflicts,
    /// Placements whose releases have to be ready first.
    pub depends_on: Vec<PlacementReference>,
    pub on_unselect: OnUnselect,
    /// `None` means that the release object says it.
    pub on_cluster_delete: Option<OnClusterDelete>,
    /// What happens to CRDs, unless the placement skips them.
    pub crds: CrdsPolicy,
    /// What happens to objects that others have changed.
    pub drift: DriftPolicy,
    /// How tests are run. `None` means that they are not.
    pub test: Option<TestPolicy>,
    /// How changes reach clusters. `None` means all at once.
    pub rollout: Option<RolloutPolicy>,
    /// Where values come from.
    pub values_from: Vec<ValuesFrom>,
}

impl Default for ReleasePolicy {
    fn default() -> Self {
        Self {
            suspend: false,
            remediation: None,
            health: true,
            checks: HealthChecks::default(),
            conflicts: FieldConflicts::default(),
            depends_on: Vec::new(),
            on_unselect: OnUnselect::default(),
            on_cluster_delete: None,
            crds: CrdsPolicy::default(),
            drift: DriftPolicy::default(),
            test: None,
            rollout: None,
            values_from: Vec::new(),
        }
    }
}

/// What applies without a policy.
static DEFAULTS: LazyLock<ReleasePolicy> = LazyLock::new(ReleasePolicy::default);

/// The policy of a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyState {
    /// The placement refers to no policy.
    #[default]
    None,
    /// The policy does not exist. The text names it, such as `AddonPolicy fleet/careful`.
    Missing(String),
    Known {
        policy: Box<ReleasePolicy>,
        /// Where the policy contradicts the placement, for users.
        conflict: Option<String>,
    },
}

impl PolicyState {
    /// Returns what applies. Without a policy, these are the defaults.
    pub fn effective(&self) -> &ReleasePolicy {
        match self {
            Self::None | Self::Missing(_) => &DEFAULTS,
            Self::Known { policy, .. } => policy,
        }
    }

    /// Returns what the policy says about the deletion of the Cluster, or what it has said last if it does not exist. `None` means
    /// that the release object says it.
    pub fn on_cluster_delete(&self, release: &impl Resource) -> Option<OnClusterDelete> {
        match self {
            Self::None => None,
            Self::Missing(_) => last_on_cluster_delete(release),
            Self::Known { policy, .. } => policy.on_cluster_delete,
        }
    }

    /// Returns whether the health of the objects is observed. While the policy does not exist, it is if it `was_observed`.
    pub fn observes_health(&self, was_observed: bool) -> bool {
        match self {
            Self::None => true,
            Self::Missing(_) => was_observed,
            Self::Known { policy, .. } => policy.health,
        }
    }

    /// Returns what users say about the health of objects. `None` means that the policy does not exist: what it has said last
    /// still counts.
    pub fn checks(&self) -> Option<HealthChecks> {
        match self {
            Self::None => Some(HealthChecks::default()),
            Self::Missing(_) => None,
            Self::Known { policy, .. } => Some(policy.checks.clone()),
        }
    }

    /// Returns whether the objects are compared with their package. While the policy does not exist, what was found before
    /// is kept if they `were_compared`.
    pub fn compares_objects(&self, were_compared: bool) -> bool {
        match self {
            Self::None => false,
            Self::Missing(_) => were_compared,
            Self::Known { policy, .. } => policy.drift.mode != DriftMode::Ignore,
        }
    }

    /// Returns the name of the policy if it does not exist.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Self::Missing(name) => Some(name),
            Self::None | Self::Known { .. } => None,
        }
    }
}

/// Merges a policy with the options of a placement, which win. Also returns a text for users if they contradict each other.
///
/// The checks of health are not part of it, because it takes time to compile them: the caller adds them.
///
/// `skipCRDs` is only part of the text: [`Desired::with_policy`](crate::release::Desired::with_policy) lets it win.
pub fn merge(spec: &AddonPolicySpec, options: PolicyOverrides) -> (ReleasePolicy, Option<String>) {
    let mut policy = ReleasePolicy {
        suspend: spec.suspend,
        remediation: spec.remediation,
        health: spec.health.as_ref().is_none_or(|health| health.enabled),
        checks: HealthChecks::default(),
        conflicts: spec.conflicts.unwrap_or_default(),
        depends_on: spec.depends_on.clone(),
        on_unselect: spec.on_unselect.unwrap_or_default(),
        on_cluster_delete: spec.on_cluster_delete,
        crds: spec.crds.unwrap_or_default(),
        drift: spec.drift.clone().unwrap_or_default(),
        test: spec.test.filter(|test| test.run),
        rollout: spec.rollout.clone(),
        values_from: spec.values_from.clone(),
    };
    let mut conflicts = Vec::new();
    if let Some(remediation) = policy.remediation.as_mut().filter(|_| options.atomic)
        && remediation.on_failure == OnFailure::Uninstall
    {
        // The tool has rolled the upgrade back, or removed the new release, when an operation has failed.
        remediation.on_failure = OnFailure::Keep;
        conflicts.push("option atomic wins over remediation.onFailure: Uninstall");
    }
    if options.force {
        policy.conflicts = FieldConflicts::Force;
        match spec.conflicts {
            Some(FieldConflicts::Fail) => conflicts.push("option force wins over conflicts: Fail"),
            Some(FieldConflicts::IgnoreFields) => {
                conflicts.push("option force wins over conflicts: IgnoreFields");
            }
            Some(FieldConflicts::Force) | None => {}
        }
    }
    if options.skip_crds {
        match spec.crds {
            Some(CrdsPolicy::Create) => conflicts.push("option skipCRDs wins over crds: Create"),
            Some(CrdsPolicy::CreateReplace) => {
                conflicts.push("option skipCRDs wins over crds: CreateReplace");
            }
            Some(CrdsPolicy::Skip) | None => {}
        }
    }
    if options.values == ValuesOwner::Placement && !spec.values_from.is_empty() {
        policy.values_from.clear();
        conflicts.push("valuesFrom is for HelmChartProxies, use parametersFrom of the ExtensionInstance");
    }
    let conflict = (!conflicts.is_empty()).then(|| {
        format!("the policy contradicts the placement: {}; change one of them", conflicts.join(", "))
    });
    (policy, conflict)
}

/// Returns whether the annotation of a placement or a release object suspends operations. A policy may suspend them, too.
pub fn is_suspended(object: &impl Resource) -> bool {
    object.annotations().get(SUSPEND_ANNOTATION).is_some_and(|value| value == "true")
}

/// Returns what the policy of a release object has said last about the deletion of the Cluster.
pub fn last_on_cluster_delete(release: &impl Resource) -> Option<OnClusterDelete> {
    OnClusterDelete::parse(release.annotations().get(ON_CLUSTER_DELETE_ANNOTATION)?)
}

/// Returns whether a placement has marked a release object as one whose Cluster it no longer selects.
pub fn is_marked_unselected(release: &impl Resource) -> bool {
    release.annotations().get(UNSELECTED_ANNOTATION).is_some_and(|value| value == "true")
}

/// Returns the policy that a placement refers to: a HelmChartProxy with its annotation, an ExtensionInstance with `policyRef`
/// of its spec.
pub fn policy_of(
    kind: PlacementKindName,
    annotations: &BTreeMap<String, String>,
    policy_ref: Option<Reference>,
) -> Option<Reference> {
    match kind {
        PlacementKindName::HelmChartProxy => parse_reference(annotations.get(POLICY_ANNOTATION)?),
        PlacementKindName::ExtensionInstance => policy_ref,
    }
}

/// Returns the text that [`parse_reference`] parses: `NAME`, or `platform/NAME` for a policy in the platform namespace.
pub fn reference_text(reference: &Reference) -> String {
    match reference.scope {
        Scope::Namespace => reference.name.clone(),
        Scope::Platform => format!("{PLATFORM_PREFIX}{}", reference.name),
    }
}

/// Parses the annotation of a HelmChartProxy: `NAME`, or `platform/NAME` for a policy in the platform namespace. Returns `None`
/// if it is empty.
pub fn parse_reference(text: &str) -> Option<Reference> {
    let text = text.trim();
    let (name, scope) = match text.strip_prefix(PLATFORM_PREFIX) {
        Some(name) => (name, Scope::Platform),
        None => (text, Scope::Namespace),
    };
    (!text.is_empty()).then(|| Reference { name: name.to_owned(), scope })
}

/// Returns the shortest cycle of dependencies through `start`, which comes first, in the order of the dependencies.
pub fn find_cycle(
    start: &PlacementReference,
    depends_on: impl Fn(&PlacementReference) -> Vec<PlacementReference>,
) -> Option<Vec<PlacementReference>> {
    let mut visited = BTreeSet::from([start.clone()]);
    let mut paths = vec![vec![start.clone()]];
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for path in paths {
            for next in path.last().map(&depends_on).unwrap_or_default() {
                if next == *start {
                    return Some(path);
                }
                if visited.insert(next.clone()) {
                    longer.push(path.iter().cloned().chain([next]).collect());
                }
            }
        }
        paths = longer;
    }
    None
}

/// Returns a cycle as text for users: `HelmChartProxy a -> HelmChartProxy b -> HelmChartProxy a`.
pub fn cycle_text(cycle: &[PlacementReference]) -> String {
    let names: Vec<_> = cycle.iter().chain(cycle.first()).map(ToString::to_string).collect();
    names.join(" -> ")
}

#[cfg(test)]
mod tests;

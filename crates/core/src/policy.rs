//! AddonPolicies: what applies to the releases of a placement.

use std::collections::BTreeSet;

use chandler_api::extensions::{
    AddonPolicySpec, CrdsPolicy, FieldConflicts, OnClusterDelete, OnFailure, OnUnselect, PlacementReference,
    Reference, Remediation, Scope,
};

/// Prefix of the name of a policy in the platform namespace, in the annotation of a HelmChartProxy.
const PLATFORM_PREFIX: &str = "platform/";

/// The options of a placement that a policy may contradict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    pub atomic: bool,
    pub skip_crds: bool,
    pub force: bool,
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
    pub conflicts: FieldConflicts,
    /// Placements whose releases have to be ready first.
    pub depends_on: Vec<PlacementReference>,
    pub on_unselect: OnUnselect,
    /// `None` means that the release object says it.
    pub on_cluster_delete: Option<OnClusterDelete>,
    pub crds: CrdsPolicy,
}

impl Default for ReleasePolicy {
    fn default() -> Self {
        Self {
            suspend: false,
            remediation: None,
            health: true,
            conflicts: FieldConflicts::default(),
            depends_on: Vec::new(),
            on_unselect: OnUnselect::default(),
            on_cluster_delete: None,
            crds: CrdsPolicy::default(),
        }
    }
}

/// The policy of a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyState {
    /// The placement refers to no policy.
    #[default]
    None,
    /// The policy does not exist. The text names it, such as `AddonPolicy fleet/careful`.
    Missing(String),
    Known {
        policy: ReleasePolicy,
        /// Where the policy contradicts the placement, for users.
        conflict: Option<String>,
    },
}

impl PolicyState {
    /// Returns what applies. Without a policy, these are the defaults.
    pub fn effective(&self) -> ReleasePolicy {
        match self {
            Self::None | Self::Missing(_) => ReleasePolicy::default(),
            Self::Known { policy, .. } => policy.clone(),
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
pub fn merge(spec: &AddonPolicySpec, options: &PolicyOptions) -> (ReleasePolicy, Option<String>) {
    let mut policy = ReleasePolicy {
        suspend: spec.suspend,
        remediation: spec.remediation,
        health: spec.health.unwrap_or_default().enabled,
        conflicts: spec.conflicts.unwrap_or_default(),
        depends_on: spec.depends_on.clone(),
        on_unselect: spec.on_unselect.unwrap_or_default(),
        on_cluster_delete: spec.on_cluster_delete,
        crds: spec.crds.unwrap_or_default(),
    };
    let mut conflicts = Vec::new();
    if let Some(remediation) = policy.remediation.as_mut().filter(|_| options.atomic)
        && remediation.on_failure == OnFailure::Uninstall
    {
        // The tool has rolled the upgrade back, or removed the new release, when an operation has failed.
        remediation.on_failure = OnFailure::Keep;
        conflicts.push("option atomic wins over remediation.onFailure: Uninstall");
    }
    if options.force && spec.conflicts.is_some_and(|conflicts| conflicts != FieldConflicts::Force) {
        policy.conflicts = FieldConflicts::Force;
        conflicts.push(match spec.conflicts {
            Some(FieldConflicts::IgnoreFields) => "option force wins over conflicts: IgnoreFields",
            _ => "option force wins over conflicts: Fail",
        });
    }
    if options.skip_crds {
        policy.crds = CrdsPolicy::Skip;
        match spec.crds {
            Some(CrdsPolicy::Create) => conflicts.push("option skipCRDs wins over crds: Create"),
            Some(CrdsPolicy::CreateReplace) => {
                conflicts.push("option skipCRDs wins over crds: CreateReplace")
            }
            Some(CrdsPolicy::Skip) | None => {}
        }
    }
    let conflict = (!conflicts.is_empty()).then(|| {
        format!("the policy contradicts the placement: {}; change one of them", conflicts.join(", "))
    });
    (policy, conflict)
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

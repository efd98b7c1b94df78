//! Resolves versions of extensions for a cluster that are compatible with its Kubernetes version, the platform and each
//! other.
//!
//! The solver is PubGrub. Constraints that are fixed for a cluster (Kubernetes, platform, withdrawal, channel) reject
//! versions beforehand, so the solver sees the remaining ones only. The absence of an extension is modeled as one of
//! its versions, so that optional dependencies are ordinary dependencies.

mod budget;
mod candidate_set;
mod conflict;
mod definition;
mod order;
mod problem;
mod range;
mod rejection;
mod solution;
mod solve;
#[cfg(test)]
mod tests;
mod universe;
mod upgrade;

pub(crate) use conflict::unread_text;
pub use conflict::{Cause, CauseKind, Conflict};
pub(crate) use definition::requirement;
pub use definition::{followed, published, unread};
pub use range::{Range, RangeError, parse_kubernetes_version, parse_version};
pub use rejection::Rejection;
pub use solution::{Choice, ChoiceReason, Solution};
pub use universe::{Candidate, Cluster, Published, Requirement, Universe, VersionName, VersionRequest};
pub use upgrade::{Step, UpgradeOutcome, UpgradePlan, moment_text, plan_upgrade};

use std::collections::{BTreeMap, BTreeSet};

use self::{
    budget::{Budget, Exhausted},
    problem::{Problem, ProblemInput},
    solve::{NoVersions, Search},
};
use crate::extension::is_of_platform;

/// Returns versions that satisfy all requests, or why there are none.
pub fn resolve(
    universe: &Universe,
    requests: &[VersionRequest],
    cluster: &Cluster,
) -> Result<Solution, Conflict> {
    BoundedResolver::default().resolve(universe, requests, cluster)
}

/// Resolves versions several times for one cluster, within one limit of steps.
#[derive(Debug)]
pub struct BoundedResolver(Budget);

impl Default for BoundedResolver {
    fn default() -> Self {
        Self(Budget::new())
    }
}

impl BoundedResolver {
    /// Returns versions that satisfy all requests, or why there are none.
    pub fn resolve(
        &self,
        universe: &Universe,
        requests: &[VersionRequest],
        cluster: &Cluster,
    ) -> Result<Solution, Conflict> {
        solve(ProblemInput { universe, requests, cluster, from: None }, &self.0)
    }
}

fn solve(input: ProblemInput<'_>, budget: &Budget) -> Result<Solution, Conflict> {
    let problem = Problem::new(input);
    if input.requests.is_empty() {
        // No steps are needed for that.
        return Ok(solution::solution(&problem, &BTreeMap::new(), &[], input.cluster));
    }
    let mut search = Search::new(&problem, budget);
    let of_platform = input.requests.iter().all(|request| is_of_platform(&request.extension));
    let found = budget.start(of_platform).map_err(NoVersions::Unknown).and_then(|()| search.run());
    match found {
        Ok((chosen, order)) => Ok(solution::solution(&problem, &chosen, &order, input.cluster)),
        Err(NoVersions::Proven(proof)) => Err(Conflict::new(&search, &proof)),
        Err(NoVersions::Unknown(Exhausted)) => Err(Conflict::too_complex(complex(input, budget))),
    }
}

/// Returns the requested extensions that are too complex: those that are so alone, or else the one that was requested last.
///
/// Extensions of the platform, among them those that it enforces, are examined first and with steps of their own: many of a
/// tenant cannot make them too complex.
fn complex<'a>(input: ProblemInput<'a>, budget: &Budget) -> BTreeSet<&'a str> {
    let extensions: BTreeSet<_> = input.requests.iter().map(|request| request.extension.as_str()).collect();
    let (platform, others): (Vec<&str>, Vec<&str>) =
        extensions.into_iter().partition(|extension| is_of_platform(extension));
    let is_complex = |extension: &&str| {
        if budget.start_alone(is_of_platform(extension)).is_err() {
            return true;
        }
        let is_requested = |request: &&VersionRequest| request.extension == **extension;
        let requests: Vec<_> = input.requests.iter().filter(is_requested).cloned().collect();
        let problem = Problem::new(ProblemInput { requests: &requests, ..input });
        matches!(Search::new(&problem, budget).run(), Err(NoVersions::Unknown(_)))
    };
    let alone: BTreeSet<_> = platform.into_iter().chain(others).filter(is_complex).collect();
    let last_first = input.requests.iter().rev();
    let newest = last_first.min_by_key(|request| is_of_platform(&request.extension));
    let newest = newest.filter(|_| alone.is_empty());
    alone.into_iter().chain(newest.map(|request| request.extension.as_str())).collect()
}

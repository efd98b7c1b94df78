//! Resolves versions of extensions for a cluster that are compatible with its Kubernetes version, the platform and each
//! other.
//!
//! The solver is PubGrub. Constraints that are fixed for a cluster (Kubernetes, platform, withdrawal, channel) reject
//! versions beforehand, so the solver sees the remaining ones only. The absence of an extension is modeled as one of
//! its versions, so that optional dependencies are ordinary dependencies.

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

pub use conflict::{Cause, CauseKind, Conflict};
pub(crate) use definition::requirement;
pub use definition::{followed, published};
pub use range::{Range, RangeError, parse_kubernetes_version, parse_version};
pub use rejection::Rejection;
pub use solution::{Choice, ChoiceReason, Solution};
pub use universe::{Candidate, Cluster, Published, Requirement, Universe, VersionName, VersionRequest};
pub use upgrade::{Step, UpgradeOutcome, UpgradePlan, moment_text, plan_upgrade};

use self::{
    problem::{Problem, ProblemInput},
    solve::Search,
};

/// Returns versions that satisfy all requests, or why there are none.
pub fn resolve(
    universe: &Universe,
    requests: &[VersionRequest],
    cluster: &Cluster,
) -> Result<Solution, Conflict> {
    solve(ProblemInput { universe, requests, cluster, from: None })
}

fn solve(input: ProblemInput<'_>) -> Result<Solution, Conflict> {
    let problem = Problem::new(input);
    let mut search = Search::new(&problem);
    match search.run() {
        Ok((chosen, order)) => Ok(solution::solution(&problem, &chosen, &order, input.cluster)),
        Err(proof) => Err(Conflict::new(&search, &proof)),
    }
}

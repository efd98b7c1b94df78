//! Which version of which extension a cluster gets: those that fit its Kubernetes, the platform and each other.
//!
//! The search is PubGrub's. What is fixed for a cluster (Kubernetes, platform, withdrawal, channel) decides about each
//! version beforehand; the solver sees the rest. An extension that is absent counts as one of its versions, so that a
//! dependency which is optional is one like any other.

mod answer;
mod conflict;
mod definition;
mod order;
mod places;
mod problem;
mod range;
mod rejection;
mod solve;
#[cfg(test)]
mod tests;
mod universe;
mod upgrade;

pub use answer::{Choice, Solution, Why};
pub use conflict::{About, Conflict, Fact};
pub(crate) use definition::needed;
pub use definition::{followed, published};
pub use range::{Range, RangeError, parse_kubernetes_version, parse_version};
pub use rejection::Rejection;
pub use universe::{Candidate, Cluster, Needed, Published, Universe, VersionName, Wanted};
pub use upgrade::{Outcome, Step, UpgradePlan, moment_in_words, plan_upgrade};

use self::{
    problem::{Problem, ProblemInput},
    solve::Search,
};

/// Versions for a cluster, or why there are none.
pub fn resolve(universe: &Universe, wanted: &[Wanted], cluster: &Cluster) -> Result<Solution, Conflict> {
    solve(ProblemInput { universe, wanted, cluster, from: None })
}

fn solve(input: ProblemInput<'_>) -> Result<Solution, Conflict> {
    let problem = Problem::new(input);
    let mut search = Search::new(&problem);
    match search.run() {
        Ok((chosen, order)) => Ok(answer::answer(&problem, &chosen, &order, input.cluster)),
        Err(proof) => Err(Conflict::new(&search, &proof)),
    }
}

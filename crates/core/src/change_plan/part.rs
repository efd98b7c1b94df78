//! The parts of a plan, which are known one after the other.

use super::{ClusterPlan, ObjectPlan};

/// A part of a plan that is known. Parts follow each other in the order of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanPart<'a> {
    /// The plan of an object begins. Its clusters follow, if it has some.
    Begin {
        object: &'a ObjectPlan,
        has_clusters: bool,
    },
    Cluster(&'a ClusterPlan),
    /// The plan of an object with all its clusters.
    End(&'a ObjectPlan),
}

impl ObjectPlan {
    /// Returns the parts of a plan that is known.
    pub fn parts(&self) -> impl Iterator<Item = PlanPart<'_>> {
        let begin = PlanPart::Begin { object: self, has_clusters: !self.clusters.is_empty() };
        let clusters = self.clusters.iter().map(PlanPart::Cluster);
        [begin].into_iter().chain(clusters).chain([PlanPart::End(self)])
    }
}

//! Generates a sequence of actions and faults from a seed. Equal seeds give equal sequences, as long as the generator does
//! not change.

use fastrand::Rng;

use crate::{
    action::{
        Action, ChartVersion, Cluster, Fault, ManagementCluster, Placement, PlaneId, ReleaseId, Step,
        UserAction,
    },
    model::Model,
};

/// The version of the generator. It is counted up whenever a change of this file, of the actions or of the model changes
/// the sequences of seeds.
pub const VERSION: u32 = 2;
/// The number of steps after the first two, which create placements.
const STEPS: std::ops::RangeInclusive<usize> = 5..=10;
/// How long a step waits. Short waits let actions overlap with operations, long ones let them end.
const WAITS_MS: [u64; 6] = [0, 100, 300, 800, 1500, 3000];
const FAULT_PERCENT: u32 = 45;
const HEAL_PERCENT: u32 = 30;
const ATTEMPTS: usize = 50;

/// Returns the steps of a seed.
pub fn sequence(seed: u64) -> Vec<Step> {
    let mut generator =
        Generator { rng: Rng::with_seed(seed), model: Model::default(), unhealed: false, value: 0 };
    let created =
        [Placement(0), Placement(1)].map(|placement| Action::User(UserAction::CreatePlacement(placement)));
    let mut steps = Vec::new();
    for action in created {
        steps.push(generator.step(steps.len(), action));
    }
    for _ in 0..generator.rng.usize(STEPS) {
        let action = generator.next_action();
        steps.push(generator.step(steps.len(), action));
    }
    steps
}

/// Returns the seed of a sequence of a run. The first is that of the run, so that a printed seed replays its sequence.
pub fn sequence_seed(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index)
}

struct Generator {
    rng: Rng,
    model: Model,
    /// Whether a fault lasts.
    unhealed: bool,
    /// The last number that a value or an annotation was set to.
    value: u32,
}

impl Generator {
    fn step(&mut self, number: usize, action: Action) -> Step {
        self.model.apply(action);
        match action {
            Action::Fault(fault) => self.unhealed |= lasts(fault),
            Action::Heal => self.unhealed = false,
            Action::User(_) => {}
        }
        Step { number, wait_ms: self.pick(&WAITS_MS), action }
    }

    /// Returns an action that the model allows.
    fn next_action(&mut self) -> Action {
        if self.unhealed && self.percent(HEAL_PERCENT) {
            return Action::Heal;
        }
        for _ in 0..ATTEMPTS {
            let action = if self.percent(FAULT_PERCENT) {
                Action::Fault(self.fault())
            } else {
                Action::User(self.user_action())
            };
            if self.model.allows(action) {
                return action;
            }
        }
        Action::Heal
    }

    fn fault(&mut self) -> Fault {
        let plane = self.pick(&PlaneId::ALL);
        let management = self.pick(&ManagementCluster::ALL);
        // Most faults of managers hit the one that has the objects.
        let management = if self.percent(75) { self.model.management() } else { management };
        let faults = [
            Fault::Delay(plane),
            Fault::Reset(plane),
            Fault::Hold(plane),
            Fault::DropConnections(plane),
            Fault::KillManager(management),
            Fault::SuspendManager(management),
            Fault::ReplaceManager(management),
            Fault::KillDriver(management),
            Fault::SuspendDriver(management),
            Fault::RestartApiServer(plane),
            Fault::RestartEtcd(plane),
            Fault::Compact(plane),
        ];
        self.pick(&faults)
    }

    fn user_action(&mut self) -> UserAction {
        self.value += 1;
        let value = self.value;
        let placement = self.pick(&Placement::ALL);
        let cluster = self.pick(&Cluster::ALL);
        let release = ReleaseId { placement, cluster };
        let version = self.pick(&ChartVersion::ALL);
        let paused = self.model.paused_placement().unwrap_or(placement);
        let actions = [
            UserAction::CreatePlacement(placement),
            // Edits are the most frequent change.
            UserAction::EditValues(placement, value),
            UserAction::EditValues(placement, value),
            UserAction::EditValues(placement, value),
            UserAction::EditVersion(placement, version),
            UserAction::DeletePlacement(placement),
            UserAction::PausePlacement(placement),
            UserAction::ResumePlacement(paused),
            UserAction::PauseCluster(cluster),
            UserAction::ResumeCluster(cluster),
            UserAction::Select(release),
            UserAction::Deselect(release),
            UserAction::Annotate(cluster, value),
            UserAction::RecreateCluster(cluster),
            UserAction::RotateCredentials(cluster),
            // Possible only once per cluster, so it is chosen more often.
            UserAction::UpgradeKubernetes(cluster),
            UserAction::UpgradeKubernetes(cluster),
            UserAction::Move,
            UserAction::HelmUpgrade(release),
            UserAction::HelmUninstall(release),
            UserAction::EditObject(release),
            UserAction::DeleteObject(release),
        ];
        self.pick(&actions)
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// Returns one of the elements of an array, which is not empty.
    fn pick<T: Copy, const N: usize>(&mut self, from: &[T; N]) -> T {
        from[self.rng.usize(0..N)]
    }
}

/// Returns whether a fault lasts until it is healed.
fn lasts(fault: Fault) -> bool {
    match fault {
        Fault::Delay(_)
        | Fault::Reset(_)
        | Fault::Hold(_)
        | Fault::SuspendManager(_)
        | Fault::ReplaceManager(_)
        | Fault::SuspendDriver(_) => true,
        Fault::DropConnections(_)
        | Fault::KillManager(_)
        | Fault::KillDriver(_)
        | Fault::RestartApiServer(_)
        | Fault::RestartEtcd(_)
        | Fault::Compact(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        assert_eq!(sequence(7), sequence(7));
        assert_ne!(sequence(7), sequence(8));
        assert_eq!(sequence_seed(u64::MAX, 1), 0);
    }

    #[test]
    fn every_action_is_allowed_when_it_is_performed() {
        for seed in 0..200 {
            let mut model = Model::default();
            for step in sequence(seed) {
                assert!(model.allows(step.action), "seed {seed}: {step}");
                model.apply(step.action);
            }
        }
    }

    /// Returns the name of a variant, without its fields.
    fn variant(value: impl std::fmt::Debug) -> String {
        format!("{value:?}").split('(').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn all_kinds_of_actions_and_faults_occur() {
        let steps: Vec<Step> = (0..300).flat_map(sequence).collect();
        let mut faults = BTreeSet::new();
        let mut actions = BTreeSet::new();
        for step in &steps {
            match step.action {
                Action::Fault(fault) => drop(faults.insert(variant(fault))),
                Action::User(action) => drop(actions.insert(variant(action))),
                Action::Heal => {}
            }
        }
        assert_eq!(faults.len(), 12, "{faults:?}");
        assert_eq!(actions.len(), 19, "{actions:?}");
        assert!(steps.iter().any(|step| step.action == Action::Heal));
    }

    #[test]
    fn steps_are_numbered_and_not_too_many() {
        for seed in 0..50 {
            let steps = sequence(seed);
            let numbers: BTreeSet<usize> = steps.iter().map(|step| step.number).collect();
            assert_eq!(numbers, (0..steps.len()).collect());
            assert!((7..=12).contains(&steps.len()));
        }
    }
}

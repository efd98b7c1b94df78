//! The model: predicts the end state that a sequence of actions has to lead to, whatever faults happen meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use chandler_sandbox::assets::KubernetesVersion;

use crate::{
    action::{
        Action, ChartVersion, Cluster, ManagementCluster, Placement, PlacementKind, ReleaseId, UserAction,
    },
    chart::PublishedVersion,
};

/// The state that users have asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    management: ManagementCluster,
    placements: BTreeMap<Placement, PlacementModel>,
    clusters: BTreeMap<Cluster, ClusterModel>,
    histories: BTreeMap<ReleaseId, ReleaseHistory>,
    /// The number of faults, including upgrades of Kubernetes, which restart an API server.
    faults: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacementModel {
    value: u32,
    version: ChartVersion,
    paused: bool,
}

/// The state of a Cluster that users have asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterModel {
    pub selected_by: BTreeSet<Placement>,
    pub annotation: u32,
    pub paused: bool,
    pub kubernetes: KubernetesVersion,
}

/// What users have done to a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReleaseHistory {
    /// The number of changes, each of which may need a revision or cancel an operation, which has then made one.
    changes: u32,
    /// Whether a user has ever asked for its removal, or deleted its Cluster.
    removed: bool,
    /// Whether it may be left on its cluster: the Cluster was deleted while a removal may not have been complete.
    may_be_left: bool,
    /// Whether a user has deleted one of its objects.
    object_deleted: bool,
}

/// The content of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub value: u32,
    pub version: PublishedVersion,
    pub annotation: u32,
    /// The Kubernetes version of the cluster, which the templates read.
    pub kubernetes: KubernetesVersion,
}

/// The state that a release must have in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Deployed(Content),
    Absent,
    /// It is not managed, and may or may not exist.
    Unmanaged,
}

impl Default for Model {
    fn default() -> Self {
        let cluster = || ClusterModel {
            selected_by: Placement::ALL.into_iter().collect(),
            annotation: 0,
            paused: false,
            kubernetes: KubernetesVersion::default(),
        };
        Self {
            management: ManagementCluster::A,
            placements: BTreeMap::new(),
            clusters: Cluster::ALL.into_iter().map(|name| (name, cluster())).collect(),
            histories: BTreeMap::new(),
            faults: 0,
        }
    }
}

impl Model {
    /// Returns the management cluster that has the objects.
    pub fn management(&self) -> ManagementCluster {
        self.management
    }

    /// Returns whether an action makes sense now. Others are skipped, such as an edit of a placement that does not exist.
    pub fn allows(&self, action: Action) -> bool {
        let Action::User(action) = action else { return true };
        let paused = |placement: &Placement| self.placements.get(placement).map(|found| found.paused);
        match &action {
            UserAction::CreatePlacement(placement) => paused(placement).is_none(),
            // The deletion of a paused placement waits until it is resumed.
            UserAction::DeletePlacement(placement) | UserAction::PausePlacement(placement) => {
                paused(placement) == Some(false)
            }
            UserAction::EditValues(placement, _) => paused(placement).is_some(),
            UserAction::EditVersion(placement, version) => {
                self.placements.get(placement).is_some_and(|found| found.version != *version)
            }
            UserAction::ResumePlacement(placement) => paused(placement) == Some(true),
            UserAction::PauseCluster(cluster) => !self.is_paused(*cluster),
            UserAction::ResumeCluster(cluster) => self.is_paused(*cluster),
            UserAction::Select(release) => !self.has_label(*release),
            UserAction::Deselect(release) => self.has_label(*release),
            UserAction::HelmUpgrade(release)
            | UserAction::HelmUninstall(release)
            | UserAction::EditObject(release)
            | UserAction::DeleteObject(release) => self.is_selected(*release),
            UserAction::UpgradeKubernetes(cluster) => self.next_kubernetes(*cluster).is_some(),
            UserAction::Annotate(..)
            | UserAction::RecreateCluster(_)
            | UserAction::RotateCredentials(_)
            | UserAction::Move => true,
        }
    }

    /// Records an action that was performed.
    pub fn apply(&mut self, action: Action) {
        match action {
            Action::User(action) => self.apply_user_action(action),
            Action::Fault(_) => self.faults += 1,
            Action::Heal => {}
        }
    }

    fn apply_user_action(&mut self, action: UserAction) {
        match action {
            UserAction::CreatePlacement(placement) => {
                let created = PlacementModel { value: 0, version: ChartVersion::First, paused: false };
                self.placements.insert(placement, created);
                self.change_selected(|release| release.placement == placement);
            }
            UserAction::DeletePlacement(placement) => {
                self.remove_selected(|release| release.placement == placement);
                self.placements.remove(&placement);
            }
            UserAction::EditValues(placement, value) => self.edit(placement, |found| found.value = value),
            UserAction::EditVersion(placement, version) => {
                self.edit(placement, |found| found.version = version);
            }
            UserAction::PausePlacement(placement) => self.set_paused(placement, true),
            UserAction::ResumePlacement(placement) => self.set_paused(placement, false),
            UserAction::PauseCluster(cluster) => self.change_cluster(cluster, |found| found.paused = true),
            UserAction::ResumeCluster(cluster) => self.change_cluster(cluster, |found| found.paused = false),
            UserAction::Select(release) => {
                self.change_cluster(release.cluster, |found| {
                    found.selected_by.insert(release.placement);
                });
                self.change_selected(|other| other == release);
            }
            UserAction::Deselect(release) => {
                self.remove_selected(|other| other == release);
                self.change_cluster(release.cluster, |found| {
                    found.selected_by.remove(&release.placement);
                });
            }
            UserAction::Annotate(cluster, annotation) => {
                self.change_cluster(cluster, |found| found.annotation = annotation);
                self.change_selected(|release| release.cluster == cluster);
            }
            UserAction::RecreateCluster(cluster) => {
                self.recreate(cluster);
                self.change_selected(|release| release.cluster == cluster);
            }
            UserAction::RotateCredentials(cluster) => {
                self.change_selected(|release| release.cluster == cluster);
            }
            UserAction::UpgradeKubernetes(cluster) => self.upgrade_kubernetes(cluster),
            UserAction::Move => {
                self.management = self.management.other();
                self.change_selected(|_| true);
            }
            UserAction::HelmUpgrade(release) | UserAction::HelmUninstall(release) => {
                self.history(release).changes += 1;
            }
            UserAction::DeleteObject(release) => self.history(release).object_deleted = true,
            UserAction::EditObject(_) => {}
        }
    }

    /// Returns the actions that end all pauses. Whether a change before a pause was still made is not determined, but the
    /// state after the pause is.
    pub fn closing_actions(&self) -> Vec<UserAction> {
        let placements = self.placements.iter().filter(|(_, found)| found.paused);
        let clusters = self.clusters.iter().filter(|(_, found)| found.paused);
        placements
            .map(|(placement, _)| UserAction::ResumePlacement(*placement))
            .chain(clusters.map(|(cluster, _)| UserAction::ResumeCluster(*cluster)))
            .collect()
    }

    /// Returns the state that a release must have in the end.
    pub fn expected(&self, release: ReleaseId) -> Expected {
        let history = self.histories.get(&release);
        match (self.placements.get(&release.placement), self.cluster(release.cluster)) {
            (Some(placement), Some(cluster)) if cluster.selected_by.contains(&release.placement) => {
                let kind = release.placement.kind();
                Expected::Deployed(Content {
                    value: placement.value,
                    version: PublishedVersion::installed_by(kind, placement.version, cluster.kubernetes),
                    annotation: cluster.annotation,
                    kubernetes: cluster.kubernetes,
                })
            }
            _ if history.is_some_and(|history| history.may_be_left) => Expected::Unmanaged,
            _ => Expected::Absent,
        }
    }

    /// Returns whether a user has deleted one of the objects of a release, which Chandler need not create again.
    pub fn may_lack_objects(&self, release: ReleaseId) -> bool {
        self.histories.get(&release).is_some_and(|history| history.object_deleted)
    }

    /// Returns whether a user has ever asked for the removal of a release, or deleted its Cluster.
    pub fn may_be_removed(&self, release: ReleaseId) -> bool {
        self.histories.get(&release).is_some_and(|history| history.removed)
    }

    /// Returns the largest number of revisions that Chandler may have created: one per change, and one per fault.
    pub fn revision_limit(&self, release: ReleaseId) -> u32 {
        self.histories.get(&release).map_or(0, |history| history.changes) + self.faults
    }

    /// Returns whether a placement exists.
    pub fn exists(&self, placement: Placement) -> bool {
        self.placements.contains_key(&placement)
    }

    /// Returns the state of a Cluster that users have asked for.
    pub fn cluster(&self, cluster: Cluster) -> Option<&ClusterModel> {
        self.clusters.get(&cluster)
    }

    /// Returns whether a cluster is paused.
    pub fn is_paused(&self, cluster: Cluster) -> bool {
        self.cluster(cluster).is_some_and(|found| found.paused)
    }

    /// Returns a placement that is paused.
    pub fn paused_placement(&self) -> Option<Placement> {
        self.placements.iter().find(|(_, found)| found.paused).map(|(placement, _)| *placement)
    }

    /// Returns the Kubernetes version of a cluster.
    pub fn kubernetes(&self, cluster: Cluster) -> KubernetesVersion {
        self.cluster(cluster).map_or_else(KubernetesVersion::default, |found| found.kubernetes)
    }

    /// Returns the Kubernetes version to which a cluster can be upgraded, or `None` if it has the newest one.
    pub fn next_kubernetes(&self, cluster: Cluster) -> Option<KubernetesVersion> {
        let current = self.kubernetes(cluster);
        KubernetesVersion::PREBUILT.into_iter().find(|version| *version > current)
    }

    fn has_label(&self, release: ReleaseId) -> bool {
        self.cluster(release.cluster).is_some_and(|found| found.selected_by.contains(&release.placement))
    }

    fn is_selected(&self, release: ReleaseId) -> bool {
        self.exists(release.placement) && self.has_label(release)
    }

    fn history(&mut self, release: ReleaseId) -> &mut ReleaseHistory {
        self.histories.entry(release).or_default()
    }

    fn edit(&mut self, placement: Placement, edit: impl FnOnce(&mut PlacementModel)) {
        if let Some(found) = self.placements.get_mut(&placement) {
            edit(found);
        }
        self.change_selected(|release| release.placement == placement);
    }

    fn set_paused(&mut self, placement: Placement, paused: bool) {
        if let Some(found) = self.placements.get_mut(&placement) {
            found.paused = paused;
        }
    }

    fn change_cluster(&mut self, cluster: Cluster, change: impl FnOnce(&mut ClusterModel)) {
        if let Some(found) = self.clusters.get_mut(&cluster) {
            change(found);
        }
    }

    fn change_selected(&mut self, matches: impl Fn(ReleaseId) -> bool) {
        for release in ReleaseId::all().filter(|release| matches(*release)) {
            if self.is_selected(release) {
                let history = self.history(release);
                history.changes += 1;
                history.may_be_left = false;
            }
        }
    }

    fn remove_selected(&mut self, matches: impl Fn(ReleaseId) -> bool) {
        for release in ReleaseId::all().filter(|release| matches(*release)) {
            if self.is_selected(release) {
                self.history(release).removed = true;
            }
        }
    }

    /// The templates of all releases read the Kubernetes version. The version of an extension changes too, maybe later. An
    /// operation that runs while the API server restarts may fail.
    fn upgrade_kubernetes(&mut self, cluster: Cluster) {
        if let Some(next) = self.next_kubernetes(cluster) {
            self.change_cluster(cluster, |found| found.kubernetes = next);
        }
        self.change_selected(|release| release.cluster == cluster);
        self.change_selected(|release| {
            release.cluster == cluster && release.placement.kind() == PlacementKind::ExtensionInstance
        });
        self.faults += 1;
    }

    /// A release whose Cluster is deleted stays on its control plane, and is adopted afterwards if it is selected. Its
    /// release object is deleted with the Cluster; if the new Cluster exists before this is complete, the release may be
    /// removed and installed again.
    fn recreate(&mut self, cluster: Cluster) {
        for release in ReleaseId::all().filter(|release| release.cluster == cluster) {
            let is_selected = self.is_selected(release);
            let history = self.history(release);
            history.may_be_left |= history.removed && !is_selected;
            history.removed |= is_selected;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Fault, PlaneId};

    const P: Placement = Placement(0);
    const ON_ALPHA: ReleaseId = ReleaseId { placement: P, cluster: Cluster::Alpha };
    const ON_BRAVO: ReleaseId = ReleaseId { placement: P, cluster: Cluster::Bravo };
    const EXTENSION: Placement = Placement(1);
    const EXTENSION_ON_ALPHA: ReleaseId = ReleaseId { placement: EXTENSION, cluster: Cluster::Alpha };

    fn after(actions: &[UserAction]) -> Model {
        let mut model = Model::default();
        for action in actions.iter().map(|action| Action::User(*action)) {
            assert!(model.allows(action), "{action:?}");
            model.apply(action);
        }
        model
    }

    fn content(value: u32, version: ChartVersion, annotation: u32) -> Expected {
        let version = PublishedVersion::independent(version);
        Expected::Deployed(Content { value, version, annotation, kubernetes: KubernetesVersion::V1_34 })
    }

    #[test]
    fn the_last_edit_counts_and_each_edit_allows_a_revision() {
        use ChartVersion::{First, Second};
        use UserAction::{Annotate, CreatePlacement, EditValues, EditVersion};
        let model = after(&[
            CreatePlacement(P),
            EditValues(P, 3),
            EditVersion(P, Second),
            Annotate(Cluster::Alpha, 7),
            EditValues(P, 4),
        ]);
        assert_eq!(model.expected(ON_ALPHA), content(4, Second, 7));
        assert_eq!(model.expected(ON_BRAVO), content(4, Second, 0));
        assert_eq!((model.revision_limit(ON_ALPHA), model.revision_limit(ON_BRAVO)), (5, 4));
        assert_eq!(after(&[CreatePlacement(P)]).expected(ON_ALPHA), content(0, First, 0));
    }

    #[test]
    fn only_removals_by_users_allow_removals() {
        use UserAction::{CreatePlacement, DeletePlacement, Deselect, Select};
        let deselected = after(&[CreatePlacement(P), Deselect(ON_ALPHA)]);
        assert_eq!(deselected.expected(ON_ALPHA), Expected::Absent);
        assert!(deselected.may_be_removed(ON_ALPHA) && !deselected.may_be_removed(ON_BRAVO));
        let selected = after(&[CreatePlacement(P), Deselect(ON_ALPHA), Select(ON_ALPHA)]);
        assert_eq!(selected.expected(ON_ALPHA), content(0, ChartVersion::First, 0));
        let deleted = after(&[CreatePlacement(P), DeletePlacement(P)]);
        assert_eq!(deleted.expected(ON_BRAVO), Expected::Absent);
    }

    #[test]
    fn a_release_may_be_left_if_its_cluster_is_recreated_after_a_removal() {
        use UserAction::{CreatePlacement, Deselect, RecreateCluster, Select};
        let actions =
            [CreatePlacement(P), Deselect(ON_ALPHA), RecreateCluster(Cluster::Alpha), Select(ON_ALPHA)];
        assert_eq!(after(&actions[..3]).expected(ON_ALPHA), Expected::Unmanaged);
        assert_eq!(after(&actions).expected(ON_ALPHA), content(0, ChartVersion::First, 0));
        let kept = after(&[CreatePlacement(P), RecreateCluster(Cluster::Alpha)]);
        assert_eq!(kept.expected(ON_ALPHA), content(0, ChartVersion::First, 0));
        assert!(kept.may_be_removed(ON_ALPHA) && !kept.may_be_removed(ON_BRAVO));
    }

    #[test]
    fn an_upgrade_of_kubernetes_moves_extensions_and_is_possible_once() {
        use UserAction::{CreatePlacement, RecreateCluster, UpgradeKubernetes};
        let version = |model: &Model, release| match model.expected(release) {
            Expected::Deployed(Content { version, kubernetes, .. }) => {
                (version.to_string(), kubernetes.minor())
            }
            expected => panic!("{expected:?}"),
        };
        let created = after(&[CreatePlacement(P), CreatePlacement(EXTENSION)]);
        assert_eq!(version(&created, ON_ALPHA), ("1.0.0".to_owned(), 34));
        assert_eq!(version(&created, EXTENSION_ON_ALPHA), ("34.0.0".to_owned(), 34));
        let upgraded = after(&[
            CreatePlacement(P),
            CreatePlacement(EXTENSION),
            UpgradeKubernetes(Cluster::Alpha),
            RecreateCluster(Cluster::Alpha),
        ]);
        assert_eq!(version(&upgraded, ON_ALPHA), ("1.0.0".to_owned(), 35));
        assert_eq!(version(&upgraded, EXTENSION_ON_ALPHA), ("35.0.0".to_owned(), 35));
        assert_eq!(version(&upgraded, ON_BRAVO), ("1.0.0".to_owned(), 34));
        assert!(!upgraded.allows(Action::User(UpgradeKubernetes(Cluster::Alpha))));
        assert!(upgraded.allows(Action::User(UpgradeKubernetes(Cluster::Bravo))));
        // The fault, the recreated Cluster, the creation, and one or two changes.
        let limits = (upgraded.revision_limit(ON_ALPHA), upgraded.revision_limit(EXTENSION_ON_ALPHA));
        assert_eq!(limits, (4, 5));
    }

    #[test]
    fn closing_actions_end_all_pauses() {
        use UserAction::{CreatePlacement, PauseCluster, PausePlacement};
        let mut model = after(&[CreatePlacement(P), PausePlacement(P), PauseCluster(Cluster::Bravo)]);
        let closing = model.closing_actions();
        assert_eq!(closing, [UserAction::ResumePlacement(P), UserAction::ResumeCluster(Cluster::Bravo)]);
        for action in closing {
            model.apply(Action::User(action));
        }
        assert_eq!(model.closing_actions(), []);
    }

    #[test]
    fn actions_without_an_object_are_not_allowed() {
        use UserAction::{DeletePlacement, EditValues, HelmUninstall, ResumeCluster, Select};
        let model = Model::default();
        let actions = [
            DeletePlacement(P),
            EditValues(P, 1),
            HelmUninstall(ON_ALPHA),
            ResumeCluster(Cluster::Alpha),
            Select(ON_ALPHA),
        ];
        for action in actions {
            assert!(!model.allows(Action::User(action)), "{action:?}");
        }
    }

    #[test]
    fn faults_allow_revisions_and_a_move_changes_the_management_cluster() {
        let mut model = after(&[UserAction::CreatePlacement(P), UserAction::Move]);
        model.apply(Action::Fault(Fault::Compact(PlaneId::Management(ManagementCluster::A))));
        assert_eq!((model.management(), model.revision_limit(ON_ALPHA)), (ManagementCluster::B, 3));
    }
}

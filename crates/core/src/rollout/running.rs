//! Newer packages that are found while a rollout is running wait until it has ended.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{RolloutRecord, RolloutTarget};
use crate::{
    identity::{ClusterKey, ClusterMap},
    release::ReleaseKind,
};

/// Returns the targets of a rollout to earlier packages of the same spec, and for each a cluster whose release object has it
/// already. Empty if there is none.
///
/// The release objects that were updated last tell which packages these are. `targets` are those that the placement would have
/// now.
pub fn running_targets<'a, R: ReleaseKind + 'a>(
    targets: &ClusterMap<RolloutTarget>,
    releases: impl Iterator<Item = (&'a ClusterKey, &'a R)>,
) -> ClusterMap<(RolloutTarget, ClusterKey)> {
    let group = |target: &RolloutTarget| (target.spec.clone(), target.kubernetes.clone());
    let mut newest: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for target in targets.values() {
        newest.entry(group(target)).or_default().insert(&target.package);
    }
    // If clusters have packages of their own, one of them says nothing about the others.
    newest.retain(|_, packages| packages.len() == 1);
    let mut last: BTreeMap<_, (Timestamp, RolloutTarget, ClusterKey)> = BTreeMap::new();
    for (cluster, release) in releases {
        let Some(record) = RolloutRecord::of(release).filter(|record| record.from.is_some()) else {
            continue;
        };
        let key = (record.spec.clone(), record.kubernetes.clone());
        if !newest.contains_key(&key) {
            continue;
        }
        let RolloutRecord { spec, defaults, kubernetes, at, .. } = record;
        let target = RolloutTarget { spec, defaults, package: release.package_key(), kubernetes };
        let is_later = last.get(&key).is_none_or(|(last, ..)| *last < at);
        if is_later {
            last.insert(key, (at, target, cluster.clone()));
        }
    }
    let running = targets.iter().filter_map(|(cluster, target)| {
        let (_, running, donor) = last.get(&group(target))?;
        (running.package != target.package).then(|| (cluster.clone(), (running.clone(), donor.clone())))
    });
    running.collect()
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::json;

    use super::*;

    /// A release with a version, the shared spec, when it was updated, and from which revision.
    fn release(version: &str, spec: &str, minute: i64, from: Option<u32>) -> HelmReleaseProxy {
        let mut release: HelmReleaseProxy = serde_json::from_value(json!({
            "metadata": {"name": "hello"},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": version},
        }))
        .unwrap();
        let at = Timestamp::from_second(minute * 60).unwrap();
        // Each version has its own defaults.
        let defaults = format!("defaults of {version}");
        RolloutRecord { spec: spec.to_owned(), defaults, at, from, ..RolloutRecord::default() }
            .set(&mut release);
        release
    }

    fn key(name: &str) -> ClusterKey {
        ClusterKey::new("fleet", name)
    }

    fn running(desired: &[&str], releases: &[HelmReleaseProxy]) -> Vec<(String, String, String)> {
        let names = ["a", "b", "c", "d"].map(key);
        let target = |version: &&str| RolloutTarget {
            spec: "s1".to_owned(),
            defaults: format!("defaults of {version}"),
            package: (*version).to_owned(),
            kubernetes: None,
        };
        let targets = names.iter().cloned().zip(desired.iter().map(target)).collect();
        let found = running_targets(&targets, names.iter().zip(releases));
        let text = |(cluster, (target, donor)): (ClusterKey, (RolloutTarget, ClusterKey))| {
            (cluster.name, target.package, donor.name)
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn the_release_that_was_updated_last_has_the_running_target() {
        let (old, updated) = (release("1", "s0", 1, Some(1)), |minute| release("2", "s1", minute, Some(2)));
        let all = |donor: &str| {
            ["a", "b", "c"].map(|name| (name.to_owned(), "2".to_owned(), donor.to_owned())).to_vec()
        };
        let third = ["3"; 3];
        assert_eq!(running(&third, &[updated(5), updated(6), old.clone()]), all("b"));
        assert_eq!(running(&["2"; 3], &[updated(5), old.clone(), old.clone()]), [], "it is the newest");
        assert_eq!(running(&third, &[old.clone(), old.clone(), old.clone()]), [], "a new spec");
        let next = release("3", "s1", 9, Some(3));
        assert_eq!(running(&third, &[next, updated(5), updated(6)]), [], "the next rollout has begun");
        let installed = release("2", "s1", 9, None);
        assert_eq!(running(&third, &[installed, old.clone(), old.clone()]), [], "no rollout has updated it");
        let earlier = release("1", "s1", 1, Some(1));
        assert_eq!(running(&third, &[earlier, updated(5), old.clone()]), all("b"), "not an older package");
        assert_eq!(running(&["3", "4", "5"], &[updated(5), updated(6), old]), [], "packages of their own");
    }
}

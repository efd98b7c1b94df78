//! `dependsOn`: a Sync is applied after others of its namespace.

use std::collections::{BTreeMap, BTreeSet};

use chandler_api::extensions::SyncObject;

use crate::{
    conditions,
    failure::{Category, Failure},
};

/// Why a Sync is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// Another Sync is not ready, for this reason.
    NotReady(String),
    /// The Syncs wait for each other.
    Cycle(Failure),
}

/// Checks whether the Syncs that `sync` depends on have been applied: at the same revision, if they are from the same
/// Source. `all` are the Syncs of its namespace, by name.
pub fn check_dependencies(
    sync: &SyncObject,
    revision: &str,
    all: &BTreeMap<String, impl AsRef<SyncObject>>,
) -> Result<(), Dependency> {
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    if let Some(path) = cycle(name, &sync.spec.depends_on, all) {
        let message =
            format!("Syncs depend on each other: {}; remove one of these dependencies", path.join(" → "));
        return Err(Dependency::Cycle(Failure::new(Category::InvalidSpec, message)));
    }
    for dependency in &sync.spec.depends_on {
        let problem = match all.get(dependency) {
            None => Some("does not exist".to_owned()),
            Some(other) => problem(sync, revision, other.as_ref()),
        };
        if let Some(problem) = problem {
            return Err(Dependency::NotReady(format!("Sync {dependency} {problem}")));
        }
    }
    Ok(())
}

/// Returns why a dependency is not ready.
fn problem(sync: &SyncObject, revision: &str, other: &SyncObject) -> Option<String> {
    let current = other.status.as_ref().filter(|status| {
        status.observed_generation == other.metadata.generation && other.metadata.deletion_timestamp.is_none()
    });
    let Some(status) = current else { return Some("has not been applied yet".to_owned()) };
    if !conditions::is_true(&status.conditions, "Ready") {
        return Some("is not ready".to_owned());
    }
    let applied = status.last_applied.as_ref().map(|last| &*last.revision);
    let same_source = sync.spec.source.source_ref == other.spec.source.source_ref;
    (same_source && applied != Some(revision)).then(|| format!("has not applied revision {revision} yet"))
}

/// Returns the names on a path of dependencies from `name` to itself.
fn cycle(
    name: &str,
    depends_on: &[String],
    all: &BTreeMap<String, impl AsRef<SyncObject>>,
) -> Option<Vec<String>> {
    let mut paths: Vec<Vec<String>> =
        depends_on.iter().map(|next| vec![name.to_owned(), next.clone()]).collect();
    let mut visited = BTreeSet::new();
    while let Some(path) = paths.pop() {
        let last = path.last().cloned().unwrap_or_default();
        if last == name {
            return Some(path);
        }
        if !visited.insert(last.clone()) {
            continue;
        }
        let next = all.get(&last).map(|sync| sync.as_ref().spec.depends_on.clone()).unwrap_or_default();
        paths.extend(next.into_iter().map(|next| [path.clone(), vec![next]].concat()));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn sync(name: &str, source: &str, depends_on: &[&str], status: &Value) -> Arc<SyncObject> {
        let sync = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": name, "generation": 2},
            "spec": {
                "source": {"sourceRef": {"name": source}}, "serviceAccountName": "b", "dependsOn": depends_on,
            },
            "status": status,
        });
        Arc::new(serde_json::from_value(sync).unwrap())
    }

    fn status(generation: i64, ready: &str, revision: &str) -> Value {
        json!({
            "observedGeneration": generation,
            "lastApplied": {
                "revision": revision, "digest": "", "sourceRef": {"name": "git"}, "at": "2026-01-01T00:00:00Z",
            },
            "conditions": [{
                "type": "Ready", "status": ready, "reason": "Applied", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        })
    }

    #[test]
    fn a_sync_waits_until_its_dependencies_have_applied_the_same_revision() {
        let apps = sync("apps", "git", &["base"], &Value::Null);
        let rows = [
            (None, Some("does not exist")),
            (Some(sync("base", "git", &[], &Value::Null)), Some("has not been applied yet")),
            (Some(sync("base", "git", &[], &status(1, "True", "r2"))), Some("has not been applied yet")),
            (Some(sync("base", "git", &[], &status(2, "False", "r2"))), Some("is not ready")),
            (
                Some(sync("base", "git", &[], &status(2, "True", "r1"))),
                Some("has not applied revision r2 yet"),
            ),
            (Some(sync("base", "git", &[], &status(2, "True", "r2"))), None),
            (Some(sync("base", "other", &[], &status(2, "True", "r1"))), None),
        ];
        for (base, problem) in rows {
            let all: BTreeMap<_, _> = base.into_iter().map(|base| ("base".to_owned(), base)).collect();
            let expected = problem.map(|problem| Dependency::NotReady(format!("Sync base {problem}")));
            assert_eq!(check_dependencies(&apps, "r2", &all).err(), expected);
        }
    }

    #[test]
    fn cycles_are_reported() {
        /// Names of Syncs, and what each depends on.
        type Graph<'a> = &'a [(&'a str, &'a [&'a str])];
        let ready = status(2, "True", "r2");
        let rows: [(Graph<'_>, Option<&str>); 4] = [
            (&[("a", &["a"])], Some("a → a")),
            (&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])], Some("a → b → c → a")),
            (&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])], None),
            (&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &[])], None),
        ];
        for (syncs, expected) in rows {
            let all: BTreeMap<_, _> =
                syncs.iter().map(|(name, to)| ((*name).to_owned(), sync(name, "git", to, &ready))).collect();
            match (check_dependencies(&all["a"], "r2", &all), expected) {
                (Err(Dependency::Cycle(failure)), Some(path)) => {
                    assert!(failure.message.contains(path), "{failure}");
                }
                (found, None) => assert_eq!(found, Ok(()), "{syncs:?}"),
                (found, Some(_)) => panic!("{found:?}"),
            }
        }
    }
}

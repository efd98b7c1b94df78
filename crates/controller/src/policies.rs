//! The AddonPolicies that placements refer to. They have no status, so nothing reconciles them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use chandler_api::extensions::{AddonPolicy, HealthCheck, Reference};
use chandler_core::{
    extension::namespace_of,
    health::HealthChecks,
    placement::PlacementKind,
    policy::{PolicyOverrides, PolicyState, ReleasePolicy, merge},
};
use kube::{
    api::ApiResource,
    runtime::{
        reflector::{ObjectRef, Store, store::Writer},
        watcher::Event,
    },
};

use crate::{
    routing::Router,
    run::Shared,
    watch::{Change, FirstList, Scope, watch},
};

/// The watched policies. Clones share the data.
#[derive(Clone, Debug)]
pub struct Policies {
    /// One store per watched scope.
    stores: Arc<[Store<AddonPolicy>]>,
    /// The namespace whose policies are available to all namespaces.
    platform: Arc<str>,
    checks: CompiledChecks,
}

/// The checks of policies with the texts that they were compiled from, because that takes longer than everything else in a
/// policy.
type CompiledChecks = Arc<Mutex<HashMap<ObjectRef<AddonPolicy>, (Vec<HealthCheck>, HealthChecks)>>>;

/// The writing ends of [`Policies`], for its watches.
pub struct PolicyWriters(Vec<(Scope, Writer<AddonPolicy>)>);

impl Policies {
    /// Creates an empty store for each scope.
    pub fn new(scopes: Vec<Scope>, platform: &str) -> (Self, PolicyWriters) {
        let writers: Vec<_> = scopes.into_iter().map(|scope| (scope, Writer::new(()))).collect();
        let stores = writers.iter().map(|(_, writer)| writer.as_reader()).collect();
        (
            Self { stores, platform: platform.into(), checks: CompiledChecks::default() },
            PolicyWriters(writers),
        )
    }

    /// Returns what the policy of a placement means for its releases.
    pub fn of<P: PlacementKind>(&self, placement: &P) -> PolicyState {
        let namespace = placement.meta().namespace.as_deref().unwrap_or_default();
        self.state(namespace, placement.policy().as_ref(), placement.policy_overrides())
    }

    /// Returns what the policy that a placement of `namespace` refers to means for a placement with these options.
    fn state(
        &self,
        namespace: &str,
        reference: Option<&Reference>,
        overrides: PolicyOverrides,
    ) -> PolicyState {
        let Some(reference) = reference else { return PolicyState::None };
        let home = namespace_of(reference.scope, namespace, &self.platform);
        let object = ObjectRef::new(&reference.name).within(home);
        let Some(policy) = self.stores.iter().find_map(|store| store.get(&object)) else {
            self.compiled(&object, &[]);
            return PolicyState::Missing(format!("AddonPolicy {home}/{}", reference.name));
        };
        let checks = policy.spec.health.as_ref().map_or(&[][..], |health| &health.checks);
        let checks = self.compiled(&object, checks);
        let (policy, conflict) = merge(&policy.spec, overrides);
        PolicyState::Known { policy: ReleasePolicy { checks, ..policy }.into(), conflict }
    }

    /// Compiles the checks of a policy, unless they are the same as before.
    fn compiled(&self, policy: &ObjectRef<AddonPolicy>, checks: &[HealthCheck]) -> HealthChecks {
        let mut all = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(policy) {
            Some((known, compiled)) if known == checks => return compiled.clone(),
            Some(_) if checks.is_empty() => {
                all.remove(policy);
            }
            _ => {}
        }
        let compiled = HealthChecks::compile(checks);
        if !checks.is_empty() {
            all.insert(policy.clone(), (checks.to_vec(), compiled.clone()));
        }
        compiled
    }
}

impl PolicyWriters {
    /// Stores policies that were listed once and are not watched. There must be only one scope.
    pub fn fill(&mut self, policies: Vec<AddonPolicy>, router: &Router) {
        let Self(writers) = self;
        let Some((_, writer)) = writers.first_mut() else { return };
        for policy in policies {
            router.on_policy(&Change::Applied(&policy));
            writer.apply_watcher_event(&Event::Apply(policy));
        }
    }

    /// Watches policies. Their changes enqueue the releases of the placements that use them.
    pub fn watch(self, shared: &Shared) -> Vec<FirstList> {
        let resource = ApiResource::erase::<AddonPolicy>(&());
        let start = |(scope, writer)| {
            let router = shared.router.clone();
            watch(shared.client.clone(), &scope, &resource, writer, move |change| router.on_policy(change))
        };
        self.0.into_iter().map(start).collect()
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::Scope as ReferenceScope;
    use serde_json::json;

    use super::*;

    fn policy(namespace: &str, suspend: bool) -> AddonPolicy {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy",
            "metadata": {"name": "careful", "namespace": namespace}, "spec": {"suspend": suspend},
        }))
        .unwrap()
    }

    fn reference(scope: ReferenceScope) -> Reference {
        Reference { name: "careful".to_owned(), scope }
    }

    #[test]
    fn a_policy_is_found_in_the_namespace_or_that_of_the_platform() {
        let own = Scope { namespace: Some("fleet".to_owned()), labels: None };
        let (policies, PolicyWriters(mut writers)) = Policies::new(own.and_platform("platform"), "platform");
        let (namespace, platform) =
            (reference(ReferenceScope::Namespace), reference(ReferenceScope::Platform));
        let state = |reference| policies.state("fleet", reference, PolicyOverrides::default());
        assert_eq!(state(None), PolicyState::None);
        let missing = |namespace: &str| PolicyState::Missing(format!("AddonPolicy {namespace}/careful"));
        assert_eq!(state(Some(&namespace)), missing("fleet"));
        assert_eq!(state(Some(&platform)), missing("platform"));
        for ((_, writer), object) in
            writers.iter_mut().zip([policy("fleet", true), policy("platform", false)])
        {
            writer.apply_watcher_event(&Event::Apply(object));
        }
        assert!(state(Some(&namespace)).effective().suspend);
        assert!(!state(Some(&platform)).effective().suspend);
        let mut checked = policy("fleet", true);
        for (current, is_valid) in [("status.ok", true), ("status.", false), ("status.ok", true)] {
            let checks = json!([{"apiVersion": "example.dev/v1", "kind": "Widget", "current": current}]);
            checked.spec.health = Some(serde_json::from_value(json!({"checks": checks})).unwrap());
            writers.first_mut().unwrap().1.apply_watcher_event(&Event::Apply(checked.clone()));
            for _ in 0..2 {
                let checks = state(Some(&namespace)).effective().checks.clone();
                assert_eq!((checks.invalid().is_none(), !checks.is_empty()), (is_valid, is_valid));
            }
        }
        assert_eq!(policies.checks.lock().unwrap().len(), 1);
        let deleted = Event::Delete(policy("fleet", true));
        writers.first_mut().unwrap().1.apply_watcher_event(&deleted);
        assert_eq!(state(Some(&namespace)), missing("fleet"));
        assert!(policies.checks.lock().unwrap().is_empty());
    }
}

//! HelmChartProxy: the values of its releases are its template, evaluated for each cluster, over values that its policy names; the
//! version may depend on the Kubernetes version of the cluster.

mod policy_values;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    status::PlacementStatus,
};
use chandler_core::{
    digest::Digest,
    identity::{ClusterKey, ClusterMap},
    placement::{
        KubernetesVersions, PlacementKind as _, RENDERED_FROM_ANNOTATION, Rendering, release_object,
        rendered_release_object, rendering,
    },
    poll::Poll,
    release::has_values_of_policy,
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use self::policy_values::PolicyValues;
use super::{ComposeServices, ManagedKind};
use crate::{
    ReconcileError,
    extension::Resolver,
    placement::{Compose, ComposeError, ComposeMode, Composed, WriteValues},
    policies::Policies,
    tasks::take_turns,
    templates::{TemplateInput, Templates},
    values::ValuesSecrets,
};

impl ManagedKind for HelmChartProxy {
    fn composer(services: &ComposeServices<'_>, policies: &Policies) -> Box<dyn Compose<Self>> {
        Box::new(Composer {
            templates: services.templates.clone(),
            resolver: services.resolver.clone(),
            policies: policies.clone(),
            policy_values: PolicyValues {
                templates: services.templates.clone(),
                sources: services.sources.of_field("valuesFrom"),
                secrets: ValuesSecrets::new(services.shared.client.clone()),
            },
            values_interval: services.shared.parameters_interval,
        })
    }
}

struct Composer {
    templates: Templates,
    resolver: Arc<Resolver>,
    policies: Policies,
    policy_values: PolicyValues,
    /// How often sources of values are read again.
    values_interval: Duration,
}

impl Compose<HelmChartProxy> for Composer {
    fn compose<'a>(
        &'a self,
        placement: &'a HelmChartProxy,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<HelmReleaseProxy>>,
        mode: &'a ComposeMode<'a, HelmReleaseProxy>,
    ) -> BoxFuture<'a, Result<Composed<HelmReleaseProxy>, ReconcileError>> {
        self.releases(placement, clusters, existing, mode.write_values).boxed()
    }

    fn status(
        &self,
        _: &HelmChartProxy,
        _: &ClusterMap<Arc<DynamicObject>>,
        _: &ClusterMap<Arc<HelmReleaseProxy>>,
        status: PlacementStatus,
    ) -> PlacementStatus {
        status
    }

    fn forget(&self, _: &HelmChartProxy) {}

    /// The sources that `valuesFrom` of a policy names are polled, because not all of them can be watched.
    fn requeue_after(&self, placement: &HelmChartProxy) -> Option<Duration> {
        let polls = !self.policies.of(placement).effective().values_from.is_empty();
        let seed = placement.uid().unwrap_or_default();
        polls.then(|| Poll::new(self.values_interval, &seed).wait(Timestamp::now()))
    }

    fn is_needed(&self, _: &HelmReleaseProxy) -> Option<String> {
        None
    }
}

impl Composer {
    async fn releases(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
        write_values: WriteValues,
    ) -> Result<Composed<HelmReleaseProxy>, ReconcileError> {
        let policy = self.policies.of(placement);
        let values_from = &policy.effective().values_from;
        let mut composed = if values_from.is_empty() {
            self.templated_releases(placement, clusters, existing).await?
        } else {
            self.policy_values
                .releases(placement, values_from.clone(), clusters, existing, write_values)
                .await?
        };
        if policy.missing().is_some() {
            // What the policy has said last is part of these releases.
            composed.retain(|key, _| !existing.get(key).is_some_and(|there| has_values_of_policy(&**there)));
        }
        self.set_versions(placement, clusters, existing, &mut composed).await;
        Ok(composed)
    }

    /// Returns the release object of each cluster, whose values are the template alone.
    async fn templated_releases(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
    ) -> Result<Composed<HelmReleaseProxy>, ReconcileError> {
        let template = &placement.spec.values_template;
        let uid = placement.uid().unwrap_or_default();
        let (mut composed, mut inputs, mut digests) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (done, (key, cluster)) in clusters.iter().enumerate() {
            take_turns(done).await;
            let there = existing.get(key).map(AsRef::as_ref);
            match self.known(&uid, template, key, cluster, there).await {
                Ok(Known::Plain) => {
                    composed.insert(
                        key.clone(),
                        Ok(release_object(placement, key, template.clone(), there).into()),
                    );
                }
                Ok(Known::Current(values, digest)) => {
                    let object = rendered_release_object(placement, key, values, &digest, there);
                    composed.insert(key.clone(), Ok(object.into()));
                }
                Ok(Known::Outdated(data, digest)) => {
                    inputs.push(TemplateInput { cluster: key.clone(), data, digest: digest.clone() });
                    digests.insert(key.clone(), digest);
                }
                Err(error) => {
                    composed.insert(key.clone(), Err(error));
                }
            }
        }
        let mut evaluated = self.templates.evaluate(&uid, template, inputs).await?;
        for (key, digest) in digests {
            let there = existing.get(&key).map(AsRef::as_ref);
            let values = evaluated.remove(&key).unwrap_or(Err(ComposeError::NoValues));
            let object =
                values.map(|values| rendered_release_object(placement, &key, values, &digest, there).into());
            composed.insert(key, object);
        }
        Ok(composed)
    }

    /// Sets the versions of release objects that follow the Kubernetes version of their cluster.
    async fn set_versions(
        &self,
        placement: &HelmChartProxy,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        existing: &ClusterMap<Arc<HelmReleaseProxy>>,
        composed: &mut Composed<HelmReleaseProxy>,
    ) {
        let Some(versions) = placement.kubernetes_versions() else { return };
        for (key, object) in composed {
            let (Ok(release), Some(cluster)) = (&mut *object, clusters.get(key)) else { continue };
            let there = existing.get(key).map(|there| there.spec.version.as_str());
            let version = match &versions {
                Ok(versions) => self.version(versions, key, cluster, there).await,
                Err(error) => Err(error.clone().into()),
            };
            match version {
                Ok((version, kubernetes)) => {
                    release.object.spec.version = version;
                    release.kubernetes = Some(kubernetes);
                }
                Err(error) => *object = Err(error),
            }
        }
    }

    /// Returns the version for a cluster, and the Kubernetes versions that it was chosen for.
    async fn version(
        &self,
        versions: &KubernetesVersions,
        key: &ClusterKey,
        cluster: &DynamicObject,
        existing: Option<&str>,
    ) -> Result<(String, String), ComposeError> {
        let kubernetes = self.resolver.kubernetes(key, cluster).await?;
        Ok((versions.version(&kubernetes, existing)?.to_owned(), kubernetes.minors()))
    }

    async fn known(
        &self,
        uid: &str,
        template: &str,
        key: &ClusterKey,
        cluster: &DynamicObject,
        there: Option<&HelmReleaseProxy>,
    ) -> Result<Known, ComposeError> {
        if !template.contains("{{") {
            return Ok(Known::Plain);
        }
        let (data, digest) = self.templates.data(template, key, cluster).await?;
        let last = there.and_then(|there| there.annotations().get(RENDERED_FROM_ANNOTATION));
        match (rendering(template, &digest, last.map(String::as_str)), there) {
            (Rendering::Current, Some(there)) => Ok(Known::Current(there.spec.values.clone(), digest)),
            _ => Ok(match self.templates.cached(uid, key, &digest) {
                Some(values) => Known::Current(values, digest),
                None => Known::Outdated(data, digest),
            }),
        }
    }
}

/// The values of a cluster before any template is evaluated.
enum Known {
    /// The text contains no template.
    Plain,
    /// The values were rendered from the same template and data.
    Current(String, Digest),
    Outdated(Value, Digest),
}

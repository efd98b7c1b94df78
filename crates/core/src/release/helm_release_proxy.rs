//! [`ReleaseKind`] for HelmReleaseProxy.

use std::{str::FromStr as _, time::Duration};

use chandler_api::{
    addons::{
        DEFAULT_CREDENTIALS_KEY, DEFAULT_NAMESPACE, HelmOptions, HelmReleaseProxy, RELEASE_PROXY_FINALIZER,
        ReconcileStrategy, SUCCESSFULLY_INSTALLED_ANNOTATION, SecretReference, Timeout, or_default,
    },
    extensions::{CrdsPolicy, FieldConflicts, ValuesSecret},
    reasons::ReleaseVocabulary,
    status::ReleaseStatus,
};
use kube_core::ResourceExt as _;

use super::{
    Desired, ExecutionOptions, PackageReference, ReleaseKind, RenderingOptions, SecretKey, SourceAccess,
    Strategy, ValuesReuse,
    desired::replaces_unsafe_crds,
    values_secret::{referred_values, values_of},
};
use crate::{
    failure::{Category, Failure},
    identity::{ClusterKey, ReleaseId},
    tenancy::Recorded,
};

impl ReleaseKind for HelmReleaseProxy {
    const FINALIZER: &'static str = RELEASE_PROXY_FINALIZER;
    const INSTALLED_ANNOTATION: &'static str = SUCCESSFULLY_INSTALLED_ANNOTATION;
    /// Users create HelmChartProxies, so grants name that kind.
    const REFERRER: (&'static str, &'static str) = ("addons.cluster.x-k8s.io", "HelmChartProxy");
    const VOCABULARY: ReleaseVocabulary = ReleaseVocabulary::HelmReleaseProxy;
    const VALUES_SUFFIX: &'static str = "-helm-values";

    /// Repository and chart are part of what the placement shares.
    fn package_key(&self) -> String {
        self.spec.version.clone()
    }

    fn follows_newest_version(&self) -> bool {
        self.spec.version.is_empty()
    }

    fn set_version(&mut self, version: &str) {
        version.clone_into(&mut self.spec.version);
    }

    fn values_secret(&self) -> Option<ValuesSecret> {
        referred_values(self)
    }

    fn desired(&self) -> Result<Desired, Failure> {
        let own_namespace = self.namespace().ok_or_else(|| invalid("the object has no namespace"))?;
        let spec = &self.spec;
        let cluster =
            spec.cluster_ref.name.clone().ok_or_else(|| invalid("spec.clusterRef.name is not set"))?;
        if spec.cluster_ref.namespace.as_ref().is_some_and(|namespace| *namespace != own_namespace) {
            return Err(invalid("spec.clusterRef.namespace must be the object's own namespace"));
        }
        if spec.release_name.is_empty() {
            return Err(invalid(
                "spec.releaseName is not set; the HelmChartProxy that owns the object sets it",
            ));
        }
        Ok(Desired {
            cluster: ClusterKey::new(own_namespace.clone(), cluster),
            release: ReleaseId::new(
                or_default(&spec.release_namespace, DEFAULT_NAMESPACE),
                spec.release_name.clone(),
            ),
            package: PackageReference {
                repository: spec.repo_url.clone(),
                name: spec.chart_name.clone(),
                version: Some(spec.version.clone()).filter(|version| !version.is_empty()),
            },
            access: access(self, &own_namespace),
            values: values_of(self, &own_namespace),
            depends_on: Vec::new(),
            remove_with_cluster: false,
            strategy: strategy(spec.reconcile_strategy),
            rendering: rendering(&spec.options),
            execution: ExecutionOptions {
                replace_unsafe_crds: replaces_unsafe_crds(self),
                ..execution(&spec.options)?
            },
            // A HelmChartProxy installs no Extensions.
            recorded: Recorded { account: Recorded::of(self).account, ..Recorded::default() },
        })
    }

    fn status(&self) -> Option<&ReleaseStatus> {
        self.status.as_ref()
    }
}

pub(crate) fn strategy(strategy: ReconcileStrategy) -> Strategy {
    match strategy {
        ReconcileStrategy::InstallOnce => Strategy::InstallOnce,
        ReconcileStrategy::Unset | ReconcileStrategy::Continuous => Strategy::Continuous,
    }
}

fn access(object: &HelmReleaseProxy, own_namespace: &str) -> SourceAccess {
    let tls = object.spec.tls_config.clone().unwrap_or_default();
    let credentials = object.spec.credentials.as_ref();
    let key = credentials.map(|credentials| or_default(&credentials.key, DEFAULT_CREDENTIALS_KEY));
    let login = credentials.and_then(|credentials| secret(&credentials.secret, own_namespace));
    let ca = tls.ca_secret.as_ref().and_then(|reference| secret(reference, own_namespace));
    SourceAccess {
        ca,
        credentials: login.zip(key),
        insecure_skip_tls_verify: tls.insecure_skip_tls_verify,
        catalog: None,
        folder: None,
    }
}

/// Returns `None` for a reference without a name.
fn secret(reference: &SecretReference, own_namespace: &str) -> Option<SecretKey> {
    let name = reference.name.clone().filter(|name| !name.is_empty())?;
    let namespace = or_default(reference.namespace.as_deref().unwrap_or_default(), own_namespace);
    Some(SecretKey { namespace, name })
}

fn rendering(options: &HelmOptions) -> RenderingOptions {
    let upgrade = &options.upgrade;
    RenderingOptions {
        disable_hooks: options.disable_hooks,
        skip_crds: options.skip_crds,
        sub_notes: options.sub_notes,
        values_reuse: if upgrade.reset_values {
            ValuesReuse::Reset
        } else if upgrade.reset_then_reuse_values {
            ValuesReuse::ResetThenReuse
        } else if upgrade.reuse_values {
            ValuesReuse::Reuse
        } else {
            ValuesReuse::Reset
        },
    }
}

fn execution(options: &HelmOptions) -> Result<ExecutionOptions, Failure> {
    let uninstall = options.uninstall.clone().unwrap_or_default();
    Ok(ExecutionOptions {
        create_namespace: options.install.create_namespace,
        wait: options.wait || options.atomic,
        wait_for_jobs: options.wait_for_jobs,
        atomic: options.atomic,
        take_ownership: options.take_ownership,
        force: options.upgrade.force,
        cleanup_on_fail: options.upgrade.cleanup_on_fail,
        max_history: u32::try_from(options.upgrade.max_history.max(0)).unwrap_or(u32::MAX),
        timeout: timeout(&options.timeout)?,
        keep_history: uninstall.keep_history,
        removal_description: uninstall.description,
        conflicts: FieldConflicts::default(),
        crds: CrdsPolicy::default(),
        replace_unsafe_crds: false,
    })
}

pub(super) fn timeout(Timeout(text): &Timeout) -> Result<Duration, Failure> {
    if text.is_empty() {
        return Err(invalid("spec.options.timeout is empty; write it like 10m or 90s"));
    }
    let duration = kube_core::Duration::from_str(text)
        .map_err(|error| invalid(format!("spec.options.timeout: {error}; write it like 10m or 90s")))?;
    if duration.is_negative() {
        return Err(invalid("spec.options.timeout must not be negative"));
    }
    Ok(duration.into())
}

pub(super) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(Category::InvalidSpec, message)
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{Credentials, HelmReleaseProxySpec, TlsConfig};

    use super::*;

    fn object() -> HelmReleaseProxy {
        let spec: HelmReleaseProxySpec = serde_json::from_value(serde_json::json!({
            "clusterRef": {"name": "blue"}, "chartName": "hello", "repoURL": "https://charts.example", "releaseName": "hi",
            "options": {"atomic": true, "timeout": "90s", "upgrade": {"reuseValues": true}},
        }))
        .unwrap();
        let mut object = HelmReleaseProxy::new("hello-blue", spec);
        object.metadata.namespace = Some("fleet".to_owned());
        object
    }

    #[test]
    fn defaults_are_applied() {
        let desired = object().desired().unwrap();
        assert_eq!(desired.release, ReleaseId::new("default", "hi"));
        assert!(desired.execution.wait, "atomic implies wait");
        assert!(desired.execution.create_namespace);
        assert!(!object().spec.options.wait, "the object itself is not changed");
        assert_eq!((desired.execution.timeout, desired.execution.max_history), (Duration::from_secs(90), 10));
        assert_eq!(desired.rendering.values_reuse, ValuesReuse::Reuse);
    }

    #[test]
    fn secrets_default_to_the_namespace_of_the_object() {
        let reference = |namespace: Option<&str>| SecretReference {
            name: Some("s".to_owned()),
            namespace: namespace.map(str::to_owned),
        };
        for (namespace, expected) in [(None, "fleet"), (Some(""), "fleet"), (Some("shared"), "shared")] {
            let mut object = object();
            let (secret, ca_secret) = (reference(namespace), Some(reference(namespace)));
            object.spec.credentials = Some(Credentials { secret, key: String::new() });
            object.spec.tls_config = Some(TlsConfig { ca_secret, ..TlsConfig::default() });
            let access = object.desired().unwrap().access;
            let secret = SecretKey { namespace: expected.to_owned(), name: "s".to_owned() };
            let credentials = Some((secret.clone(), "config.json".to_owned()));
            assert_eq!((access.ca, access.credentials), (Some(secret), credentials));
        }
    }

    #[test]
    fn references_without_a_name_are_ignored() {
        let mut unnamed = object();
        let secret = SecretReference { name: Some(String::new()), namespace: Some("kube-system".to_owned()) };
        unnamed.spec.credentials = Some(Credentials { secret, key: String::new() });
        unnamed.spec.tls_config =
            Some(TlsConfig { ca_secret: Some(SecretReference::default()), ..TlsConfig::default() });
        assert_eq!(unnamed.desired().unwrap().access, object().desired().unwrap().access);
    }

    #[test]
    fn invalid_durations_are_reported() {
        for text in ["soon", "-10m", ""] {
            let mut bad = object();
            bad.spec.options.timeout = Timeout(text.to_owned());
            assert!(bad.desired().unwrap_err().message.contains("spec.options.timeout"), "{text}");
        }
    }

    #[test]
    fn unset_options_have_the_defaults_of_helm() {
        let mut plain = object();
        plain.spec.options = HelmOptions::default();
        let execution = plain.desired().unwrap().execution;
        assert_eq!(execution.timeout, Duration::from_mins(10));
        plain.spec.options.upgrade.max_history = -1;
        assert_eq!(plain.desired().unwrap().execution.max_history, 0, "no limit, as in Helm");
    }
}

//! Instances that install what the platform has published, and nothing of their own.

use chandler_api::extensions::{ExtensionInstance, ReleaseOptions, ReleaseTarget, Scope};

/// Returns the name of the Extension of the platform that an instance installs as it is published: without parameters, options, a
/// name, a namespace or an account of its own.
pub fn platform_extension(instance: &ExtensionInstance) -> Option<&str> {
    let spec = &instance.spec;
    let extension = spec.extension.as_ref().filter(|extension| extension.scope == Scope::Platform)?;
    let has_nothing_of_its_own = extension.catalog.is_none()
        && spec.source.is_none()
        && spec.parameters.is_none()
        && spec.parameters_template.is_none()
        && spec.parameters_from.is_empty()
        && spec.release == ReleaseTarget::default()
        && spec.options == ReleaseOptions::default()
        && spec.workload_service_account_name.is_none();
    has_nothing_of_its_own.then_some(&*extension.name)
}

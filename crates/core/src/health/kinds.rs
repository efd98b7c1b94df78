//! Which kinds have a status that tells about health.

/// The API groups of Kubernetes itself. Groups of extensions may end in `.k8s.io` too.
const OWN_GROUPS: [&str; 21] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The kinds of these groups whose status is read. All others have none, or one that does not tell about health and may
/// change often, such as that of a HorizontalPodAutoscaler.
const WITH_STATUS: [(&str, &str); 11] = [
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "Service"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("policy", "PodDisruptionBudget"),
];

/// Returns whether the status of a kind has to be read. If not, the metadata of its objects shows that they exist, and that is
/// all. It is never read for Secrets, whose content must not leave the cluster.
pub fn has_status(api_version: &str, kind: &str) -> bool {
    let group = group(api_version);
    !OWN_GROUPS.contains(&group) || WITH_STATUS.contains(&(group, kind))
}

/// Returns the API group of `group/version`. It is empty for `v1`.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_with_a_state_are_read() {
        let rows = [
            ("apps/v1", "Deployment", true),
            ("v1", "Pod", true),
            ("batch/v1", "Job", true),
            ("policy/v1", "PodDisruptionBudget", true),
            ("cert-manager.io/v1", "Certificate", true),
            ("gateway.networking.k8s.io/v1", "Gateway", true),
            ("v1", "Secret", false),
            ("v1", "ConfigMap", false),
            ("v1", "ServiceAccount", false),
            ("v1", "Namespace", false),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", false),
            ("networking.k8s.io/v1", "NetworkPolicy", false),
            ("autoscaling/v2", "HorizontalPodAutoscaler", false),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", false),
            ("batch/v1", "CronJob", false),
        ];
        for (api_version, kind, expected) in rows {
            assert_eq!(has_status(api_version, kind), expected, "{api_version} {kind}");
        }
    }
}

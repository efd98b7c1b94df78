//! The API version of a provider's kind that implements the Cluster API contract.

use std::collections::BTreeMap;

use chandler_api::capi::CONTRACT_LABELS;
use kube_core::Version;

/// Returns the newest version that implements the newest contract, from the labels of the kind's CRD.
///
/// Providers list all versions that do, joined by underscores.
pub fn version(labels: &BTreeMap<String, String>) -> Option<String> {
    let listed = CONTRACT_LABELS.iter().find_map(|label| labels.get(*label))?;
    listed
        .split('_')
        .filter(|version| !version.is_empty())
        .max_by_key(|version| Version::parse(version).priority())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_newest_contract() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let (new, old) = ("cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1");
        assert_eq!(
            version(&labels(&[(new, "v1beta1_v1beta2"), (old, "v1alpha4")])).as_deref(),
            Some("v1beta2")
        );
        assert_eq!(version(&labels(&[(old, "v1alpha4_v1beta1")])).as_deref(), Some("v1beta1"));
        assert_eq!(version(&labels(&[])), None);
    }
}

//! A view of an object as the API server returns it.

use chandler_api::{
    capi::{DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION},
    extensions::SYNC_LABEL,
};
use serde_json::Value;

/// An object as the API server returns it.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a>(pub &'a Value);

impl<'a> Live<'a> {
    fn text(self, pointer: &str) -> Option<&'a str> {
        self.0.pointer(pointer)?.as_str()
    }

    pub fn uid(self) -> Option<&'a str> {
        self.text("/metadata/uid")
    }

    pub fn resource_version(self) -> Option<&'a str> {
        self.text("/metadata/resourceVersion")
    }

    pub fn is_deleting(self) -> bool {
        self.text("/metadata/deletionTimestamp").is_some()
    }

    fn annotation(self, name: &str) -> Option<&'a Value> {
        self.0.pointer("/metadata/annotations")?.get(name)
    }

    /// Returns the label with the owner, as [`super::owner_label`] computes it.
    pub fn owner(self) -> Option<&'a str> {
        self.0.pointer("/metadata/labels")?.get(SYNC_LABEL)?.as_str()
    }

    /// Returns whether `clusterctl move` is about to delete the object.
    pub fn is_deleted_for_move(self) -> bool {
        self.annotation(DELETE_FOR_MOVE_ANNOTATION).is_some()
    }

    /// Returns whether the object, which must be a Cluster, is paused.
    pub fn is_paused_cluster(self) -> bool {
        self.0.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false)
            || self.annotation(PAUSED_ANNOTATION).is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_paused_by_its_spec_or_an_annotation() {
        let rows = [
            (json!({}), false),
            (json!({"spec": {"paused": false}}), false),
            (json!({"spec": {"paused": true}}), true),
            (json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}), true),
        ];
        for (cluster, paused) in rows {
            assert_eq!(Live(&cluster).is_paused_cluster(), paused, "{cluster}");
        }
    }
}

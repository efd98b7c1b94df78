//! When the repository of a Source is polled, and which results of earlier polls still apply.

use std::time::Duration;

use chandler_api::extensions::{RECONCILE_ANNOTATION, Source, SourceSpec};
use serde_json::json;

use crate::digest::Digest;

/// How old a list of refs may be after a spec change: enough for Sources that are applied together.
const MOMENT: Duration = Duration::from_secs(2);

/// Returns the seed of the poll schedule. Sources with the same repository and credentials are polled at the same time, so
/// that they share a poll.
pub fn poll_seed(namespace: &str, spec: &SourceSpec) -> String {
    let credentials = spec.credentials.as_ref().map(|reference| (namespace, &reference.name, &reference.key));
    json!([spec.git.url, credentials]).to_string()
}

/// Why a Source is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollCause {
    Schedule,
    /// The spec has changed, or the manager has started.
    Change,
    /// A user has asked for it.
    Request,
}

/// Returns how old a list of refs may be.
pub fn max_refs_age(cause: PollCause, interval: Duration) -> Duration {
    match cause {
        PollCause::Schedule => interval / 2,
        PollCause::Change => MOMENT.min(interval),
        PollCause::Request => Duration::ZERO,
    }
}

/// Returns the request of a user to poll a Source, unless it has been handled.
pub fn poll_request(source: &Source) -> Option<&str> {
    let requested = source.metadata.annotations.as_ref()?.get(RECONCILE_ANNOTATION)?;
    let handled = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.as_ref());
    (handled != Some(requested)).then_some(requested.as_str())
}

/// Returns a digest of the fields that decide about the content. Files that were fetched for another digest do not belong
/// to the Source any more.
pub fn content_key(spec: &SourceSpec) -> Digest {
    Digest::of(json!([spec.git, spec.ignore, spec.verify]).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn spec(fields: &Value) -> SourceSpec {
        let mut spec = json!({"git": {"url": "https://git.example/a"}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn sources_share_a_schedule_if_they_have_the_same_repository_and_credentials() {
        let secret = json!({"credentials": {"name": "token", "key": "config.json"}});
        let seed = poll_seed("team", &spec(&json!({})));
        assert_eq!(seed, poll_seed("other", &spec(&json!({"ignore": ["docs"]}))));
        let with_credentials = poll_seed("team", &spec(&secret));
        assert_ne!(seed, with_credentials);
        assert_ne!(with_credentials, poll_seed("other", &spec(&secret)), "a Secret of another namespace");
    }

    #[test]
    fn a_changed_spec_needs_a_fresher_list_than_the_schedule_and_a_request_a_new_one() {
        let minute = Duration::from_mins(1);
        assert_eq!(max_refs_age(PollCause::Schedule, minute), Duration::from_secs(30));
        assert_eq!(max_refs_age(PollCause::Change, minute), MOMENT);
        assert_eq!(max_refs_age(PollCause::Change, Duration::from_secs(1)), Duration::from_secs(1));
        assert_eq!(max_refs_age(PollCause::Request, minute), Duration::ZERO);
    }

    #[test]
    fn a_request_is_handled_once() {
        let rows = [
            (json!({}), json!(null), None),
            (json!({"chandler.dev/reconcile-at": "t1"}), json!(null), Some("t1")),
            (json!({"chandler.dev/reconcile-at": "t1"}), json!({"lastHandledReconcileAt": "t1"}), None),
            (json!({"chandler.dev/reconcile-at": "t2"}), json!({"lastHandledReconcileAt": "t1"}), Some("t2")),
        ];
        for (annotations, status, expected) in rows {
            let source: Source = serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": "apps", "annotations": annotations},
                "spec": {"git": {"url": "https://git.example/a"}}, "status": status,
            }))
            .unwrap();
            assert_eq!(poll_request(&source), expected, "{annotations} {status}");
        }
    }

    #[test]
    fn only_what_decides_about_the_content_changes_the_key() {
        let key = |fields: Value| content_key(&spec(&fields));
        let plain = key(json!({}));
        assert_eq!(plain, key(json!({"interval": "5m", "suspend": true})));
        assert_eq!(plain, key(json!({"credentials": {"name": "token", "key": "x"}})));
        let changes = [
            json!({"git": {"url": "https://git.example/b"}}),
            json!({"git": {"url": "https://git.example/a", "ref": {"branch": "main"}}}),
            json!({"ignore": ["docs"]}),
            json!({"verify": {"keys": {"name": "keys"}}}),
        ];
        for change in changes {
            assert_ne!(plain, key(change.clone()), "{change}");
        }
    }
}

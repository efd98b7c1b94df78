//! When the repository of a Source is polled, and which results of earlier polls still apply.

use std::time::Duration;

use chandler_api::{
    addons::Timeout,
    extensions::{KeyReference, SourceSpec},
};
use serde_json::json;

use super::Origin;
use crate::{digest::Digest, failure::Failure, poll::interval};

/// How old a list of refs may be after a spec change: enough for Sources that are applied together.
const MOMENT: Duration = Duration::from_secs(2);

/// Returns the seed of the poll schedule. Sources with the same repository and credentials are polled at the same time, so
/// that they share a poll.
pub fn poll_seed(namespace: &str, spec: &SourceSpec) -> String {
    let credentials = spec.credentials.as_ref().map(KeyReference::from);
    let credentials = credentials.map(|reference| (namespace, reference.name, reference.key));
    json!([Origin::of(spec).ok().map(Origin::url), credentials]).to_string()
}

/// Returns the interval at which a Source is polled: that of the spec, but not less than `minimum`, which protects repositories
/// that many namespaces share.
pub fn poll_interval(spec: &Timeout, minimum: Duration) -> Result<Duration, Failure> {
    Ok(interval(spec)?.max(minimum))
}

/// Returns what to say about an interval that is shorter than `minimum`. `None` if it is not.
pub fn interval_remark(spec: &Timeout, minimum: Duration) -> Option<String> {
    interval(spec).ok().filter(|wanted| *wanted < minimum)?;
    Some(format!(
        "spec.interval is {}, but repositories are polled at most every {}s; for a faster reaction, set spec.receiver",
        spec.0,
        minimum.as_secs()
    ))
}

/// Why a Source is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollCause {
    Schedule,
    /// The spec has changed, or the manager has started.
    Change,
    /// A user or a webhook has asked for it.
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

/// Returns a digest of the fields that decide about the content. Files that were fetched for another digest do not belong
/// to the Source any more.
pub fn content_key(spec: &SourceSpec) -> Digest {
    Digest::of(json!([spec.git, spec.oci, spec.bucket, spec.ignore]).to_string())
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
        let default_key = json!({"credentials": {"name": "token"}});
        assert_eq!(with_credentials, poll_seed("team", &spec(&default_key)));
    }

    #[test]
    fn intervals_have_a_minimum() {
        let ten = Duration::from_secs(10);
        let rows = [("1s", 10, true), ("500ms", 10, true), ("10s", 10, false), ("5m", 300, false)];
        for (text, expected, is_remarked) in rows {
            let text = Timeout(text.to_owned());
            assert_eq!(poll_interval(&text, ten).unwrap(), Duration::from_secs(expected));
            assert_eq!(interval_remark(&text, ten).is_some(), is_remarked, "{}", text.0);
        }
        let invalid = Timeout("soon".to_owned());
        assert!(poll_interval(&invalid, ten).is_err() && interval_remark(&invalid, ten).is_none());
        let remark = interval_remark(&Timeout("1s".to_owned()), ten).unwrap();
        assert!(remark.starts_with("spec.interval is 1s, but repositories are polled at most every 10s"));
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
    fn only_what_decides_about_the_content_changes_the_key() {
        let key = |fields: Value| content_key(&spec(&fields));
        let plain = key(json!({}));
        assert_eq!(
            plain,
            key(
                json!({"interval": "5m", "suspend": true, "receiver": {"secret": {"name": "a", "key": "b"}}})
            )
        );
        assert_eq!(plain, key(json!({"credentials": {"name": "token", "key": "x"}})));
        let changes = [
            json!({"git": {"url": "https://git.example/b"}}),
            json!({"git": {"url": "https://git.example/a", "ref": {"branch": "main"}}}),
            json!({"ignore": ["docs"]}),
            json!({"git": {"url": "https://git.example/a", "verify": {"keys": {"name": "keys"}}}}),
            json!({"oci": {"url": "oci://registry.example/a"}}),
        ];
        for change in changes {
            assert_ne!(plain, key(change.clone()), "{change}");
        }
    }
}

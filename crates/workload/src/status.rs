//! The statuses with which API servers report errors. Of what a server sends, only the parts that are used are kept, and only
//! their beginning: the server may belong to someone else.

use kube::core::{Status, response::StatusDetails};
use serde::Deserialize;

/// Maximum number of characters of an API server's own message that is passed on.
pub const MAX_MESSAGE: usize = 1024;
/// Maximum number of characters of a reason, or of the name of an object.
const MAX_WORD: usize = 253;

/// The parts of a status that are used.
#[derive(Deserialize)]
struct Reported {
    status: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    name: String,
}

/// Reads the status of a failure. Everything else is `None`: it may come from another server.
pub fn failure_status(text: &[u8]) -> Option<Status> {
    let reported: Reported = serde_json::from_slice(text).ok()?;
    if reported.status != "Failure" {
        return None;
    }
    let mut status =
        Status::failure(&shortened(&reported.message, MAX_MESSAGE), &shortened(&reported.reason, MAX_WORD))
            .with_code(reported.code);
    status.details = reported.details.map(|details| StatusDetails {
        name: shortened(&details.name, MAX_WORD),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    Some(status)
}

/// Returns the beginning of a text.
pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_status_of_a_failure_is_read_and_only_its_beginning() {
        let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old", "reason": "Expired"});
        let status = failure_status(gone.to_string().as_bytes()).unwrap();
        assert_eq!(
            (status.code, status.message.as_str(), status.reason.as_str()),
            (410, "too old", "Expired")
        );
        let long = json!({
            "status": "Failure", "message": "ä".repeat(5000), "reason": "r".repeat(5000),
            "details": {"name": "n".repeat(5000), "causes": [{}, {}]},
        });
        let status = failure_status(long.to_string().as_bytes()).unwrap();
        assert_eq!(status.message, format!("{}…", "ä".repeat(MAX_MESSAGE)));
        assert_eq!(status.reason.chars().count(), MAX_WORD + 1);
        let details = status.details.unwrap();
        assert_eq!((details.name.chars().count(), details.causes.len()), (MAX_WORD + 1, 0));
        for other in [
            json!({"message": "canary"}),
            json!({"status": "Success", "message": "canary"}),
            json!({"status": {"phase": "canary"}}),
            json!("canary"),
            json!(null),
        ] {
            assert!(failure_status(other.to_string().as_bytes()).is_none(), "{other}");
        }
    }
}

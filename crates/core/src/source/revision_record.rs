//! The record of a commit or an artifact in a status. Its texts are written by users who can push, so they are cut and
//! cleaned.

use std::collections::BTreeMap;

use chandler_api::extensions::SourceRevisionRecord;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Longest text of a record, in characters.
const LONGEST: usize = 200;

/// Returns the record of a commit. `seconds` is its time since the Unix epoch; only the first line of `message` is kept.
pub fn revision_record(id: &str, author: &str, message: &str, seconds: i64) -> SourceRevisionRecord {
    SourceRevisionRecord {
        id: id.to_owned(),
        author: clean(author),
        subject: clean(message.trim_start().lines().next().unwrap_or_default()),
        time: Timestamp::from_second(seconds).ok().filter(|_| seconds > 0).map(Time),
    }
}

/// Returns the record of an artifact with this digest, from the annotations of its manifest.
pub fn artifact_record(digest: &str, annotations: &BTreeMap<String, String>) -> SourceRevisionRecord {
    let get = |name: &str| {
        let found = annotations.get(&format!("org.opencontainers.image.{name}"));
        found.map(String::as_str).filter(|text| !text.is_empty())
    };
    let subject = match (get("revision"), get("source")) {
        (Some(revision), Some(source)) => format!("{revision} of {source}"),
        (one, other) => one.or(other).unwrap_or_default().to_owned(),
    };
    let created = get("created").and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = created.map_or(0, Timestamp::as_second);
    revision_record(digest, get("authors").unwrap_or_default(), &subject, seconds)
}

/// Returns a commit or an artifact in one line, for an Event.
pub fn summary(commit: &SourceRevisionRecord) -> String {
    let mut text = commit.id.clone();
    if !commit.author.is_empty() {
        text = format!("{text} by {}", commit.author);
    }
    if commit.subject.is_empty() { text } else { format!("{text}: {}", commit.subject) }
}

/// Returns the text without control characters, cut to the longest length.
fn clean(text: &str) -> String {
    let printable = text.chars().filter(|character| !character.is_control());
    let mut cut: String = printable.clone().take(LONGEST).collect();
    if printable.count() > LONGEST {
        cut.push('…');
    }
    cut.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line_without_control_characters() {
        let record = revision_record("c1", "A <a@b>\u{1b}[31m", "\nfix: it\n\nbody", 1_700_000_000);
        assert_eq!((&*record.author, &*record.subject), ("A <a@b>[31m", "fix: it"));
        assert_eq!(record.time.unwrap().0.as_second(), 1_700_000_000);
        let long = revision_record("c1", "", &"x".repeat(500), 0);
        assert_eq!((long.subject.chars().count(), long.time), (201, None));
        assert!(revision_record("c1", "", "", i64::MAX).time.is_none());
    }

    #[test]
    fn artifacts_are_described_by_their_annotations() {
        let annotated = |fields: &[(&str, &str)]| {
            let named = |(name, value): &(&str, &str)| {
                (format!("org.opencontainers.image.{name}"), (*value).to_owned())
            };
            artifact_record("sha256:00", &fields.iter().map(named).collect())
        };
        let flux = annotated(&[
            ("created", "2026-01-02T03:04:05Z"),
            ("revision", "main@sha1:abc"),
            ("source", "https://git.example/a"),
        ]);
        assert_eq!((&*flux.id, &*flux.subject), ("sha256:00", "main@sha1:abc of https://git.example/a"));
        assert_eq!(flux.time.clone().unwrap().0.to_string(), "2026-01-02T03:04:05Z");
        let other =
            annotated(&[("authors", "Anna"), ("source", "https://git.example/a"), ("created", "soon")]);
        assert_eq!((&*other.author, &*other.subject), ("Anna", "https://git.example/a"));
        assert!(other.time.is_none() && annotated(&[]).subject.is_empty());
        assert_eq!(summary(&flux), "sha256:00: main@sha1:abc of https://git.example/a");
        assert_eq!(summary(&other), "sha256:00 by Anna: https://git.example/a");
        assert_eq!(summary(&annotated(&[])), "sha256:00");
    }
}

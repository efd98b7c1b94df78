//! The record of a commit in a status. Its texts are written by whoever can push, so they are cut and cleaned.

use chandler_api::extensions::CommitRecord;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Longest text of a record, in characters.
const LONGEST: usize = 200;

/// Returns the record of a commit. `seconds` is its time since the Unix epoch; only the first line of `message` is kept.
pub fn commit_record(id: &str, author: &str, message: &str, seconds: i64) -> CommitRecord {
    CommitRecord {
        id: id.to_owned(),
        author: clean(author),
        subject: clean(message.trim_start().lines().next().unwrap_or_default()),
        time: Timestamp::from_second(seconds).ok().filter(|_| seconds > 0).map(Time),
    }
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
        let record = commit_record("c1", "A <a@b>\u{1b}[31m", "\nfix: it\n\nbody", 1_700_000_000);
        assert_eq!((&*record.author, &*record.subject), ("A <a@b>[31m", "fix: it"));
        assert_eq!(record.time.unwrap().0.as_second(), 1_700_000_000);
        let long = commit_record("c1", "", &"x".repeat(500), 0);
        assert_eq!((long.subject.chars().count(), long.time), (201, None));
        assert!(commit_record("c1", "", "", i64::MAX).time.is_none());
    }
}

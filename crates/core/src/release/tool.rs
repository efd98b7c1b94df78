//! Selects the package tool of a release.

use crate::package_format::PackageFormat;

/// How to find the package tool of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The tool that reads packages of this format.
    ByFormat(PackageFormat),
    /// The first tool, while the package is not resolved. Nothing is applied before it is.
    First,
    /// The tool that has a record of the release: see [`tool_with_record`].
    ByRecord,
}

impl ToolChoice {
    /// `format` is that of the release's package, if it is known. If it was lost with the status of an object that is being
    /// deleted, the package is not resolved again, so only a record shows which tool has installed the release.
    pub fn new(format: Option<PackageFormat>, deleting: bool) -> Self {
        match format {
            Some(format) => Self::ByFormat(format),
            None if deleting => Self::ByRecord,
            None => Self::First,
        }
    }
}

/// What the inventory of a package tool shows about a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    Present,
    Absent,
    /// The releases of the tool are not listed yet, or the cluster is unavailable.
    Unknown,
}

/// Returns the position of the tool that has a record of the release, given what each tool shows. If none has one, this is
/// a tool whose releases are unknown, so that nothing is concluded from absence, and the first only if all are known.
pub fn tool_with_record(records: &[RecordState]) -> usize {
    let position = |state: RecordState| records.iter().position(|record| *record == state);
    position(RecordState::Present).or_else(|| position(RecordState::Unknown)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_selects_the_tool_then_the_record_of_a_deleted_release() {
        let chart = PackageFormat::default;
        let rows = [
            (Some(chart()), false, ToolChoice::ByFormat(chart())),
            (Some(chart()), true, ToolChoice::ByFormat(chart())),
            (None, false, ToolChoice::First),
            (None, true, ToolChoice::ByRecord),
        ];
        for (format, deleting, expected) in rows {
            let chosen = ToolChoice::new(format.clone(), deleting);
            assert_eq!(chosen, expected, "{format:?}, deleting: {deleting}");
        }
    }

    #[test]
    fn a_record_selects_the_tool_and_absence_counts_only_if_all_tools_are_known() {
        use RecordState::{Absent, Present, Unknown};
        let rows: [(&[RecordState], usize); 8] = [
            (&[Present], 0),
            (&[Absent, Present], 1),
            (&[Unknown, Present], 1),
            (&[Present, Present], 0),
            (&[Absent, Unknown], 1),
            (&[Absent, Unknown, Unknown], 1),
            (&[Absent, Absent], 0),
            (&[], 0),
        ];
        for (records, expected) in rows {
            assert_eq!(tool_with_record(records), expected, "{records:?}");
        }
    }
}

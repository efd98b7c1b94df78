//! Selects the package tool of a release.

use crate::{
    failure::{Category, Failure},
    identity::ToolId,
    package_format::PackageFormat,
};

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

/// Checks that a package is for the tool that has installed the release: another one would install it beside the first. A tool
/// may read several formats, so that a chart can replace a bundle and the other way round.
pub fn check_same_tool(
    reference: &str,
    installed: (&PackageFormat, ToolId),
    resolved: (&PackageFormat, ToolId),
) -> Result<(), Failure> {
    if installed.1 == resolved.1 {
        return Ok(());
    }
    let message = format!(
        "{reference} is a package of type {}, but the release was installed by another tool from one of type {}; remove the \
         release first, then install the new package",
        resolved.0, installed.0
    );
    Err(Failure::new(Category::InvalidPackage, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_stays_with_its_tool_and_may_change_its_format() {
        let (chart, bundle, other) =
            (PackageFormat::default(), PackageFormat::manifests(), PackageFormat::new("text/yaml"));
        let (helm, second) = (ToolId(0), ToolId(1));
        let check = |installed, resolved| check_same_tool("oci://a/b:1", installed, resolved);
        for (installed, resolved) in [(&chart, &chart), (&chart, &bundle), (&bundle, &chart)] {
            assert_eq!(check((installed, helm), (resolved, helm)), Ok(()), "{installed} {resolved}");
        }
        for (installed, resolved) in [((&chart, helm), (&other, second)), ((&other, second), (&bundle, helm))]
        {
            let refused = check(installed, resolved).unwrap_err();
            assert_eq!(refused.category, Category::InvalidPackage);
            assert!(refused.message.contains("remove the release first"), "{refused}");
        }
    }

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

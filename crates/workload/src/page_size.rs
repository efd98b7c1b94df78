//! How many objects one response of a list has.

/// Metadata are about 1 KiB per object, so that one page has all objects of most kinds: a page more is a request more for each
/// cluster, with each restart.
const METADATA: u32 = 1_000;
const OBJECTS: u32 = 500;
/// Definitions of custom resources are large.
const DEFINITIONS: u32 = 10;
/// By how much a page that was too large is divided.
const DIVISOR: u32 = 8;

/// The maximum number of objects of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

impl PageSize {
    /// Returns the size of the first page of a kind. Of kinds without a status, only the metadata are read.
    pub fn of(has_status: bool, kind: &str) -> Self {
        if kind == "CustomResourceDefinition" {
            return Self(DEFINITIONS);
        }
        Self(if has_status { OBJECTS } else { METADATA })
    }

    /// Returns the size of the first page of records of releases.
    pub fn of_records() -> Self {
        Self(OBJECTS)
    }

    /// Returns the number of objects.
    pub fn objects(self) -> u32 {
        self.0
    }

    /// Returns the size to try after a page was too large. `None` if it had a single object.
    pub fn smaller(self) -> Option<Self> {
        (self.0 > 1).then(|| Self((self.0 / DIVISOR).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_get_smaller_down_to_one_object() {
        let rows: [(bool, &str, &[u32]); 3] = [
            (false, "ConfigMap", &[1_000, 125, 15, 1]),
            (true, "Deployment", &[500, 62, 7, 1]),
            (true, "CustomResourceDefinition", &[10, 1]),
        ];
        for (has_status, kind, expected) in rows {
            let first = PageSize::of(has_status, kind);
            let sizes: Vec<_> = std::iter::successors(Some(first), |size| size.smaller()).collect();
            assert_eq!(sizes.into_iter().map(PageSize::objects).collect::<Vec<_>>(), expected, "{kind}");
        }
    }
}

//! The list of a release's objects, whose memory is shared.

use std::{
    borrow::Cow,
    collections::HashSet,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ObjectRecord;

/// Objects on a workload cluster. Equal lists share their memory: the releases of an add-on have the same objects on thousands
/// of clusters, and the status of each release lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRecords(Arc<[ObjectRecord]>);

impl ObjectRecords {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Deref for ObjectRecords {
    type Target = [ObjectRecord];

    fn deref(&self) -> &[ObjectRecord] {
        &self.0
    }
}

impl From<Vec<ObjectRecord>> for ObjectRecords {
    fn from(records: Vec<ObjectRecord>) -> Self {
        static LISTS: LazyLock<Mutex<Lists>> = LazyLock::new(Mutex::default);
        if records.is_empty() {
            return Self::default();
        }
        Self(LISTS.lock().unwrap_or_else(PoisonError::into_inner).share(records))
    }
}

impl FromIterator<ObjectRecord> for ObjectRecords {
    fn from_iter<I: IntoIterator<Item = ObjectRecord>>(records: I) -> Self {
        records.into_iter().collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a ObjectRecords {
    type Item = &'a ObjectRecord;
    type IntoIter = std::slice::Iter<'a, ObjectRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Serialize for ObjectRecords {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self[..].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ObjectRecords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<ObjectRecord>::deserialize(deserializer).map(Self::from)
    }
}

/// The schema is that of a list.
impl JsonSchema for ObjectRecords {
    fn inline_schema() -> bool {
        Vec::<ObjectRecord>::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<ObjectRecord>::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        Vec::<ObjectRecord>::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<ObjectRecord>::json_schema(generator)
    }
}

/// The lists in use, and some that no longer are.
#[derive(Default)]
struct Lists {
    known: HashSet<Arc<[ObjectRecord]>>,
    /// Unused lists are removed when there are so many.
    sweep_at: usize,
}

impl Lists {
    const FIRST_SWEEP: usize = 64;

    fn share(&mut self, records: Vec<ObjectRecord>) -> Arc<[ObjectRecord]> {
        if let Some(known) = self.known.get(records.as_slice()) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|list| Arc::strong_count(list) > 1);
            self.sweep_at = self.known.len().saturating_mul(2).max(Self::FIRST_SWEEP);
        }
        let list: Arc<[ObjectRecord]> = records.into();
        self.known.insert(list.clone());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(name: &str) -> Vec<ObjectRecord> {
        vec![ObjectRecord { api_version: "v1".to_owned(), name: name.to_owned(), ..ObjectRecord::default() }]
    }

    #[test]
    fn equal_lists_share_their_memory() {
        let text = serde_json::to_string(&records("shared")).unwrap();
        let (one, other): (ObjectRecords, ObjectRecords) =
            (serde_json::from_str(&text).unwrap(), records("shared").into());
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert_eq!(serde_json::to_string(&one).unwrap(), text);
        assert_ne!(one, ObjectRecords::from_iter(records("different")));
        assert!(ObjectRecords::from(Vec::new()).is_empty());
    }

    #[test]
    fn lists_that_are_not_used_any_more_are_removed() {
        let mut lists = Lists::default();
        let kept = lists.share(records("kept"));
        for number in 0..Lists::FIRST_SWEEP * 3 {
            lists.share(records(&number.to_string()));
        }
        assert!(lists.known.len() <= Lists::FIRST_SWEEP, "{}", lists.known.len());
        assert!(Arc::ptr_eq(&kept, &lists.share(records("kept"))));
    }

    #[test]
    fn the_schema_is_that_of_a_list() {
        let schema = |one: Schema| serde_json::to_value(one).unwrap();
        let list = schema(SchemaGenerator::default().into_root_schema_for::<Vec<ObjectRecord>>());
        assert_eq!(schema(SchemaGenerator::default().into_root_schema_for::<ObjectRecords>()), list);
    }
}

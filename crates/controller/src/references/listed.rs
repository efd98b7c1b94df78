//! Referenced objects that are listed once, for plans: a kind that cannot be read fails once, not for each Cluster.

use std::{collections::HashMap, sync::Arc};

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use tokio::{sync::OnceCell, time::timeout};

use super::{Kind, LIST_LIMIT, ReferenceError};
use crate::locks::Mutex;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// The objects of a kind in a namespace by name, or why they are unknown.
type Listed = Result<HashMap<String, Arc<DynamicObject>>, ReferenceError>;

type Lists = HashMap<(Kind, String), Arc<OnceCell<Listed>>>;

/// The objects that were listed, by kind and namespace. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedObjects(Arc<Mutex<Lists>>);

impl ListedObjects {
    /// Returns an object. `list` is called for the first object of its kind in the namespace.
    pub async fn get(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        list: impl Future<Output = Listed>,
    ) -> Result<Arc<DynamicObject>, ReferenceError> {
        let cell = self.cell(kind, namespace);
        let listed = cell.get_or_init(|| list).await.as_ref().map_err(Clone::clone)?;
        listed.get(name).cloned().ok_or_else(|| ReferenceError::Missing {
            kind: kind.1.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns an object of a kind that has been listed.
    pub fn known(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        self.cell(kind, namespace).get()?.as_ref().ok()?.get(name).cloned()
    }

    fn cell(&self, kind: &Kind, namespace: &str) -> Arc<OnceCell<Listed>> {
        self.0.lock().entry((kind.clone(), namespace.to_owned())).or_default().clone()
    }
}

/// Lists the objects of a kind in a namespace.
pub(super) async fn list(client: Client, resource: ApiResource, namespace: &str) -> Listed {
    let failed = |reason: String| ReferenceError::Forbidden {
        group: resource.group.clone(),
        kind: resource.kind.clone(),
        namespace: namespace.to_owned(),
        reason,
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let pages = async {
        let (mut found, mut params) = (HashMap::new(), ListParams::default().limit(PAGE));
        loop {
            let page = api.list(&params).await?;
            found.extend(page.items.into_iter().map(|object| (object.name_any(), Arc::new(object))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok::<_, kube::Error>(found),
            }
        }
    };
    match timeout(LIST_LIMIT, pages).await {
        Ok(listed) => listed.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {LIST_LIMIT:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn each_kind_is_listed_once_also_if_that_fails() {
        let all = ListedObjects::default();
        let kind = |kind: &str| ("example.dev".to_owned(), kind.to_owned());
        let lists = AtomicUsize::new(0);
        let list = |is_allowed: bool| {
            let lists = &lists;
            async move {
                lists.fetch_add(1, Ordering::Relaxed);
                let object = Arc::new(DynamicObject::new("alpha", &crate::clusters::resource()));
                let forbidden = ReferenceError::NotListed { group: String::new(), kind: String::new() };
                if is_allowed { Ok(HashMap::from([("alpha".to_owned(), object)])) } else { Err(forbidden) }
            }
        };
        assert!(all.known(&kind("Plane"), "fleet", "alpha").is_none());
        for (name, expected) in [("alpha", true), ("bravo", false), ("alpha", true)] {
            let found = all.get(&kind("Plane"), "fleet", name, list(true)).await;
            assert_eq!(found.is_ok(), expected, "{name}");
        }
        assert!(all.known(&kind("Plane"), "fleet", "alpha").is_some());
        assert_eq!(lists.load(Ordering::Relaxed), 1);
        for _ in 0..3 {
            let failed = all.get(&kind("Other"), "fleet", "alpha", list(false)).await.unwrap_err();
            assert!(matches!(failed, ReferenceError::NotListed { .. }), "{failed}");
        }
        assert_eq!(lists.load(Ordering::Relaxed), 2);
    }
}

//! Extensions whose dependencies or parameters take exponential time.

use chandler_sandbox::hostile::chart::doubling_schema;
use serde_json::{Value, json};

use crate::tenants::{
    attack::{Attack, ROUND, Site},
    objects,
};

const CLUSTER: &str = "dependencies";
const PIGEONS: usize = 14;

/// The versions of an Extension.
type Versions = Vec<Value>;

pub fn attack(site: &Site<'_>) -> Attack {
    let namespace = site.tenant.namespace;
    let source = site.tenant.source();
    let schema = ("schema".to_owned(), vec![version_with_schema(&source)]);
    let mut objects: Vec<_> = pigeons(&source)
        .into_iter()
        .chain([schema])
        .map(|(name, versions)| {
            objects::object("Extension", namespace, &name, &json!({"versions": versions}))
        })
        .collect();
    for name in ["bad", "schema"] {
        let fields = json!({"extension": {"name": name}, "parameters": {"a": 1}});
        objects.push(site.instance(&format!("extension-{name}"), CLUSTER, &fields));
    }
    Attack { clusters: vec![site.own_cluster(CLUSTER)], objects, ..Attack::default() }
}

fn version(version: &str, source: &Value, dependencies: &Value) -> Value {
    json!({"version": version, "kubernetes": "*", "dependencies": dependencies, "source": source})
}

fn version_with_schema(source: &Value) -> Value {
    let mut version = version(&format!("1.0.{ROUND}"), source, &json!([]));
    version["parameters"] = json!({"schema": doubling_schema()});
    version
}

/// Returns extensions with their versions. `bad` needs pigeons that need a slot each, of which there is one too few. The proof that
/// there is no solution is exponentially long.
fn pigeons(source: &Value) -> Vec<(String, Versions)> {
    let numbered =
        |number: usize, dependencies: &Value| version(&format!("{number}.0.0"), source, dependencies);
    let needs: Vec<_> =
        (1..=PIGEONS).map(|pigeon| json!({"extension": format!("pigeon-{pigeon}")})).collect();
    let bad = ("bad".to_owned(), vec![version(&format!("1.0.{ROUND}"), source, &json!(needs))]);
    let pigeons = (1..=PIGEONS).map(|pigeon| {
        let in_slot = |slot: usize| {
            let slot_of_it = json!({"extension": format!("slot-{slot}"), "range": format!("={pigeon}.0.0")});
            numbered(slot, &json!([slot_of_it]))
        };
        (format!("pigeon-{pigeon}"), (1..PIGEONS).map(in_slot).collect())
    });
    let slots = (1..PIGEONS).map(|slot| {
        let versions = (1..=PIGEONS).map(|pigeon| numbered(pigeon, &json!([]))).collect();
        (format!("slot-{slot}"), versions)
    });
    std::iter::once(bad).chain(pigeons).chain(slots).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_slot_too_few() {
        let extensions = pigeons(&json!({}));
        let count = |prefix: &str| extensions.iter().filter(|(name, _)| name.starts_with(prefix)).count();
        assert_eq!(count("pigeon-"), PIGEONS);
        assert_eq!(count("slot-"), PIGEONS - 1);
        let (_, versions) = extensions.iter().find(|(name, _)| name == "pigeon-3").unwrap();
        assert_eq!(versions[1]["dependencies"], json!([{"extension": "slot-2", "range": "=3.0.0"}]));
    }
}

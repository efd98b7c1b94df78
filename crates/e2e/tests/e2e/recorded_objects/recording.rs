//! Creates the recorded objects, and the chart repositories that they refer to.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
};

use chandler_api::FIELD_MANAGER;
use chandler_e2e::world::World;
use chandler_sandbox::{
    dynamic_api,
    plane::Plane,
    repository::{Authentication, ChartRepository},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

/// The namespace that the objects were recorded in.
const NAMESPACE: &str = "team";
/// The login in the recorded Secret.
const LOGIN: (&str, &str) = ("user", "canary-of-a-repository");

#[derive(Deserialize)]
struct Objects {
    cluster: RecordedCluster,
    /// Owners precede what they own.
    management: Vec<Value>,
    workload: Vec<Value>,
}

#[derive(Deserialize)]
struct RecordedCluster {
    uid: String,
    annotations: BTreeMap<String, String>,
}

/// Recorded objects and a [`World`] for them.
pub struct Recording {
    pub world: World,
    /// The repository that requires a login.
    pub private: ChartRepository,
    _open: ChartRepository,
    objects: Objects,
}

impl Recording {
    pub async fn start() -> Self {
        let mut world = World::new("recorded").await;
        NAMESPACE.clone_into(&mut world.namespace);
        world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": NAMESPACE},
            "stringData": {"ca.crt": world.repository.ca_pem()},
        });
        world.apply(&ca).await;
        let login = Authentication::Basic { user: LOGIN.0.to_owned(), password: LOGIN.1.to_owned() };
        let open = serve_charts(&world, "open", Authentication::Anonymous).await;
        let private = serve_charts(&world, "private", login).await;
        let text = fs::read_to_string(folder().join("objects.json")).unwrap();
        let text =
            text.replace("@repository@", open.url()).replace("@private@", &expose(private.url()).await);
        let objects = serde_json::from_str(&text).unwrap();
        Self { world, private, _open: open, objects }
    }

    /// Creates the objects on the management cluster, and on the workload cluster.
    pub async fn restore(&self, alpha: &Plane) {
        let workload = alpha.client().await.unwrap();
        let mut uids = BTreeMap::new();
        for object in &self.objects.workload {
            restore_object(&workload, object, &mut uids).await;
        }
        let recorded = &self.objects.cluster;
        let annotations = Patch::Merge(json!({"metadata": {"annotations": recorded.annotations}}));
        let by_chandler =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let cluster = self.world.clusters().patch("alpha", &by_chandler, &annotations).await.unwrap();
        let mut uids = BTreeMap::from([(recorded.uid.clone(), cluster.uid().unwrap())]);
        for object in &self.objects.management {
            restore_object(&self.world.client, object, &mut uids).await;
        }
    }

    /// Returns Chandler's annotations of the Cluster.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.objects.cluster.annotations
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/recorded_objects")
}

/// Serves the recorded packages.
async fn serve_charts(world: &World, name: &str, authentication: Authentication) -> ChartRepository {
    let served = world.dir.join(name);
    fs::create_dir_all(&served).unwrap();
    for entry in fs::read_dir(folder().join("charts")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), served.join(entry.file_name())).unwrap();
    }
    let authority = world.sandbox.authority();
    ChartRepository::start_with_authentication(authority, &served, authentication).await.unwrap()
}

/// Makes a server on a loopback port reachable at an address of the machine's network, which no flag of the manager allows.
/// Returns the URL of that address.
async fn expose(url: &str) -> String {
    let target = url.strip_prefix("https://").unwrap().to_owned();
    let listener = TcpListener::bind((network_address(), 0)).await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = target.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    url
}

/// Returns the address from which this machine would send to others, or loopback if it has no network.
fn network_address() -> IpAddr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    // Nothing is sent.
    let routed = socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).and_then(|()| socket.local_addr());
    routed.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

/// Creates a recorded object with its status and field managers. `uids` maps recorded uids to those of this cluster.
async fn restore_object(client: &Client, recorded: &Value, uids: &mut BTreeMap<String, String>) {
    let mut text = recorded.to_string();
    for (old, new) in uids.iter() {
        text = text.replace(old, new);
    }
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let status = object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    let (uid, managers) = (metadata.remove("uid").unwrap(), metadata.remove("managedFields").unwrap());
    let api = api_of(client, &object);
    let created = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let name = created.name_any();
    uids.insert(uid.as_str().unwrap().to_owned(), created.uid().unwrap());
    if let Some(mut status) = status {
        set_observed_generation(&mut status, created.metadata.generation);
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    // A patch that changes nothing else replaces the field managers, as `clusterctl move` does it.
    let patch = Patch::Merge(json!({"metadata": {"managedFields": managers}}));
    let restored = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(json!(restored.metadata.managed_fields), managers, "field managers of {name}");
}

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let resource =
        dynamic_api::resource(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// An object that was changed before it was recorded has another generation here.
fn set_observed_generation(value: &mut Value, generation: Option<i64>) {
    match value {
        Value::Object(fields) => {
            if let Some(observed) = fields.get_mut("observedGeneration") {
                *observed = generation.into();
            }
            fields.values_mut().for_each(|field| set_observed_generation(field, generation));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_observed_generation(item, generation)),
        _ => {}
    }
}

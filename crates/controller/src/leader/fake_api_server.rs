//! An API server with a single Lease, whose responses a test can suppress.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::Connect;

#[derive(Default)]
struct State {
    lease: Option<Value>,
    /// The last resourceVersion.
    version: u64,
    updates: usize,
    conflicts: usize,
    /// The next write is stored, but the client gets an error.
    loses_response: bool,
    /// Requests get no response.
    hangs: bool,
}

#[derive(Clone, Default)]
pub struct FakeApiServer(Arc<Mutex<State>>);

impl FakeApiServer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn connect(&self) -> Connect {
        let server = self.clone();
        Connect::new(move || {
            let server = server.clone();
            let answer = move |request: Request<Body>| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            };
            Ok(Client::new(tower::service_fn(answer), "default"))
        })
    }

    /// Lets another process acquire the Lease; an empty holder releases it.
    pub fn acquire(&self, holder: &str) {
        let lease = json!({"metadata": {"name": "chandler"}, "spec": {"holderIdentity": holder}});
        self.state().store(lease);
    }

    pub fn delete(&self) {
        self.state().lease = None;
    }

    /// Stores the next write, but answers it with an error.
    pub fn lose_next_response(&self) {
        self.state().loses_response = true;
    }

    /// Answers no request from now on.
    pub fn hang(&self) {
        self.state().hangs = true;
    }

    /// Returns the number of writes over an existing Lease.
    pub fn updates(&self) -> usize {
        self.state().updates
    }

    /// Returns the number of writes that were refused.
    pub fn conflicts(&self) -> usize {
        self.state().conflicts
    }

    /// Returns the holder of the Lease, or `None` if there is no Lease.
    pub fn holder(&self) -> Option<String> {
        let holder = self.state().lease.as_ref()?["spec"]["holderIdentity"].clone();
        Some(holder.as_str().unwrap_or_default().to_owned())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let sent = body.collect_bytes().await.unwrap();
        let hangs = self.state().hangs;
        if hangs {
            return std::future::pending().await;
        }
        let (code, body) = if parts.method == Method::GET {
            self.state().lease.clone().map_or_else(|| failure(404), |lease| (200, lease))
        } else {
            self.state().write(&parts.method, serde_json::from_slice(&sent).unwrap())
        };
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
    }
}

impl State {
    fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        lease
    }

    /// Creates or replaces the Lease if its resourceVersion is the one that the client has read.
    fn write(&mut self, method: &Method, lease: Value) -> (u16, Value) {
        let is_update = *method == Method::PUT;
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match &self.lease {
            None if is_update => return failure(404),
            Some(known) if !is_update || version(known) != version(&lease) => {
                self.conflicts += 1;
                return failure(409);
            }
            _ => {}
        }
        self.updates += usize::from(is_update);
        let stored = self.store(lease);
        if std::mem::take(&mut self.loses_response) { failure(500) } else { (200, stored) }
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": reason}))
}

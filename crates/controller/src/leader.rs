//! Leader election by a Lease.

mod thread;

use std::{fmt, sync::Arc, time::Duration};

use chandler_core::leadership::{Decision, LeaseObserver, LeaseTimes, ObservedLease};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

pub use self::thread::LeaderThread;
use crate::ManagementError;

/// The minimum delay between two attempts to renew.
const RETRY: Duration = Duration::from_millis(200);

/// Options of the leader election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease. Managers of different namespaces use different ones.
    pub name: String,
    /// The holder identity of this process. It must be unique over time.
    pub identity: String,
    pub times: LeaseTimes,
    /// Creates the client that reads and writes the Lease.
    pub connect: Connect,
}

/// Creates clients of the management cluster. The runtime in which a client is created drives its connections.
#[derive(Clone)]
pub struct Connect(Arc<dyn Fn() -> Result<Client, kube::Error> + Send + Sync>);

impl Connect {
    pub fn new(connect: impl Fn() -> Result<Client, kube::Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    pub fn client(&self) -> Result<Client, kube::Error> {
        (self.0)()
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

/// The Lease while this process holds it.
struct Leadership {
    leases: Api<Lease>,
    election: Election,
    held: Lease,
    renewed: Instant,
}

impl Election {
    /// Waits until this process has acquired the Lease.
    async fn acquire(self) -> Result<Leadership, ManagementError> {
        let client = self.connect.client().map_err(|source| reading(&self, source))?;
        let leases: Api<Lease> = Api::namespaced(client, &self.namespace);
        let mut observer = LeaseObserver::new(&self.identity, self.times);
        let mut logged = String::new();
        loop {
            let current = leases.get_opt(&self.name).await.map_err(|source| reading(&self, source))?;
            if observer.observe(current.as_ref().map(observed), Timestamp::now()) == Decision::Acquire {
                let requested = Instant::now();
                if let Some(held) = self.write(&leases, current.as_ref(), &self.identity).await? {
                    tracing::info!(namespace = self.namespace, identity = self.identity, "leading");
                    return Ok(Leadership { leases, election: self, held, renewed: requested });
                }
            } else if let Some(holder) =
                current.map(|lease| observed(&lease).holder).filter(|holder| *holder != logged)
            {
                tracing::info!(holder, "another process leads; waiting");
                logged = holder;
            }
            tokio::time::sleep(self.times.renew_interval() / 2).await;
        }
    }

    /// Writes the Lease if it is unchanged since it was read. Returns `None` if another process has changed it.
    async fn write(
        &self,
        leases: &Api<Lease>,
        over: Option<&Lease>,
        holder: &str,
    ) -> Result<Option<Lease>, ManagementError> {
        let lease = self.lease(over, holder);
        let written = match over {
            None => leases.create(&PostParams::default(), &lease).await,
            Some(_) => leases.replace(&self.name, &PostParams::default(), &lease).await,
        };
        match written {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(source) => Err(ManagementError::Write { kind: "Lease", name: self.name.clone(), source }),
        }
    }

    fn lease(&self, over: Option<&Lease>, holder: &str) -> Lease {
        let old = over.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let changed = old.holder_identity.as_deref() != Some(holder);
        let now = MicroTime(Timestamp::now());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                resource_version: over.and_then(ResourceExt::resource_version),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: i32::try_from(self.times.duration.as_secs()).ok(),
                renew_time: Some(now.clone()),
                acquire_time: if changed { Some(now) } else { old.acquire_time },
                lease_transitions: Some(old.lease_transitions.unwrap_or_default() + i32::from(changed)),
                ..LeaseSpec::default()
            }),
        }
    }
}

impl Leadership {
    /// Renews the Lease until it is lost or could not be renewed before the deadline. Returns why.
    async fn renew_until_lost(&mut self) -> String {
        let times = self.election.times;
        loop {
            // Measured from the last renewal, so that a slow renewal does not delay the next one.
            tokio::time::sleep(times.renew_interval().saturating_sub(self.renewed.elapsed()).max(RETRY))
                .await;
            let left = times.renew_deadline().saturating_sub(self.renewed.elapsed());
            if left.is_zero() {
                return format!("the Lease could not be renewed for {:?}", self.renewed.elapsed());
            }
            let requested = Instant::now();
            let attempt = self.election.write(&self.leases, Some(&self.held), &self.election.identity);
            match tokio::time::timeout(left.max(Duration::from_millis(100)), attempt).await {
                Ok(Ok(Some(lease))) => {
                    self.held = lease;
                    self.renewed = requested;
                }
                Ok(Ok(None)) => return "another process has acquired the Lease".to_owned(),
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the Lease; retrying"),
                Err(_) => tracing::warn!("the Lease could not be renewed in time; retrying"),
            }
        }
    }

    /// Releases the Lease, so that the next leader need not wait for it to expire. All work must have stopped before.
    async fn resign(self) {
        if let Err(error) = self.election.write(&self.leases, Some(&self.held), "").await {
            tracing::warn!(%error, "cannot release the Lease; it will expire");
        }
    }
}

fn observed(lease: &Lease) -> ObservedLease {
    let spec = lease.spec.clone().unwrap_or_default();
    ObservedLease {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
    }
}

fn reading(election: &Election, source: kube::Error) -> ManagementError {
    ManagementError::Read { what: format!("Lease {}/{}", election.namespace, election.name), source }
}

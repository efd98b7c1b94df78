//! Leader election by a Lease.

mod clock;
#[cfg(test)]
mod fake_api_server;
mod fence;
mod thread;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chandler_core::leadership::{
    AfterConflict, BootTime, Decision, LeaseObserver, LeaseTimes, ObservedLease, Renewal, after_conflict,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;

pub use self::{fence::fence, thread::LeaderThread};
use crate::ManagementError;

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

/// Until when this process certainly holds the Lease. `None` means that it does not hold it.
pub type LeaseUntil = Option<BootTime>;

/// The Lease while this process holds it.
struct Leadership {
    leases: Api<Lease>,
    election: Election,
    /// The Lease as last read or written. `None` means that it was deleted and must be created again.
    lease: Option<Lease>,
    renewal: Renewal,
    until: watch::Sender<LeaseUntil>,
}

/// The result of an attempt to acquire the Lease.
enum Acquisition {
    /// This process has written the Lease.
    Acquired(Box<Lease>, Renewal),
    /// The process with this identity holds the Lease.
    HeldBy(String),
    /// Another process has written the Lease at the same time.
    Conflict,
}

/// The result of a write that requires the Lease to be unchanged.
enum Written {
    Done(Box<Lease>),
    /// The Lease has changed, or was deleted.
    Conflict,
}

impl Election {
    /// Waits until this process has acquired the Lease. Sets `standby` while another process holds it.
    async fn acquire(
        self,
        standby: &AtomicBool,
        until: watch::Sender<LeaseUntil>,
    ) -> Result<Leadership, ManagementError> {
        let client = self.connect.client().map_err(|source| reading(&self, source))?;
        let leases: Api<Lease> = Api::namespaced(client, &self.namespace);
        let mut observer = LeaseObserver::new(&self.identity, self.times);
        let mut logged = String::new();
        loop {
            let attempt = self.try_acquire(&leases, &mut observer);
            match tokio::time::timeout(self.times.renew_deadline(), attempt).await {
                Ok(Ok(Acquisition::Acquired(lease, renewal))) => {
                    // It has passed already if the process was stopped meanwhile.
                    if clock::now() < renewal.deadline() {
                        standby.store(false, Ordering::Release);
                        tracing::info!(namespace = self.namespace, identity = self.identity, "leading");
                        until.send_replace(Some(renewal.held_until()));
                        return Ok(Leadership {
                            leases,
                            election: self,
                            lease: Some(*lease),
                            renewal,
                            until,
                        });
                    }
                }
                Ok(Ok(Acquisition::HeldBy(holder))) => {
                    standby.store(true, Ordering::Release);
                    if holder != logged {
                        tracing::info!(holder, "another process leads; waiting");
                        logged = holder;
                    }
                }
                Ok(Ok(Acquisition::Conflict)) => {}
                Ok(Err(error)) if is_permanent(&error) => return Err(error),
                Ok(Err(error)) => tracing::warn!(%error, "cannot acquire the Lease; retrying"),
                Err(_) => tracing::warn!("the API server did not answer about the Lease in time; retrying"),
            }
            tokio::time::sleep(self.times.poll_period()).await;
        }
    }

    async fn try_acquire(
        &self,
        leases: &Api<Lease>,
        observer: &mut LeaseObserver,
    ) -> Result<Acquisition, ManagementError> {
        let current = self.read(leases).await?;
        let seen = current.as_ref().map(observed);
        let holder = seen.as_ref().map(|lease| lease.holder.clone()).unwrap_or_default();
        if observer.observe(seen, clock::now()) == Decision::Wait {
            return Ok(Acquisition::HeldBy(holder));
        }
        let requested = clock::now();
        Ok(match self.write(leases, current.as_ref(), &self.identity).await? {
            Written::Done(lease) => Acquisition::Acquired(lease, Renewal::new(self.times, requested)),
            Written::Conflict => Acquisition::Conflict,
        })
    }

    async fn read(&self, leases: &Api<Lease>) -> Result<Option<Lease>, ManagementError> {
        leases.get_opt(&self.name).await.map_err(|source| reading(self, source))
    }

    /// Writes the Lease if it is unchanged since it was read. `None` means that it did not exist.
    async fn write(
        &self,
        leases: &Api<Lease>,
        over: Option<&Lease>,
        holder: &str,
    ) -> Result<Written, ManagementError> {
        let lease = self.lease(over, holder);
        let written = match over {
            None => leases.create(&PostParams::default(), &lease).await,
            Some(_) => leases.replace(&self.name, &PostParams::default(), &lease).await,
        };
        match written {
            Ok(lease) => Ok(Written::Done(Box::new(lease))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Conflict),
            Err(kube::Error::Api(status)) if status.code == 404 && over.is_some() => Ok(Written::Conflict),
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
                lease_duration_seconds: whole_seconds(self.times.duration()),
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
        let why = loop {
            let deadline = self.renewal.deadline();
            let renewed = tokio::select! {
                // First: after the process was stopped, a response that waited meanwhile must not hide that it is late.
                biased;
                () = clock::sleep_until(deadline) => {
                    break format!("the Lease could not be renewed for {:?}", self.election.times.renew_deadline());
                }
                renewed = self.renew_when_due() => renewed,
            };
            match renewed {
                Ok(true) => {}
                Ok(false) => break "another process has acquired or released the Lease".to_owned(),
                Err(error) => tracing::warn!(%error, "cannot renew the Lease; retrying"),
            }
        };
        self.until.send_replace(None);
        why
    }

    /// Waits for the time of the next renewal and renews. Returns whether the Lease still belongs to this process.
    async fn renew_when_due(&mut self) -> Result<bool, ManagementError> {
        clock::sleep_until(self.renewal.next_attempt(clock::now())).await;
        let requested = clock::now();
        let write = self.election.write(&self.leases, self.lease.as_ref(), &self.election.identity);
        // The connection may be broken although no error was reported. The next attempt opens another.
        let Ok(written) = tokio::time::timeout(self.election.times.poll_period(), write).await else {
            tracing::warn!("no response to the renewal of the Lease; retrying");
            return Ok(true);
        };
        match written? {
            Written::Done(lease) => {
                self.lease = Some(*lease);
                self.renewal = Renewal::new(self.election.times, requested);
                self.until.send_replace(Some(self.renewal.held_until()));
                Ok(true)
            }
            Written::Conflict => self.read_after_conflict().await,
        }
    }

    /// Reads the Lease again after a refused write. Returns whether it still belongs to this process: an earlier write of
    /// this process, whose response was lost, may be what has changed it.
    async fn read_after_conflict(&mut self) -> Result<bool, ManagementError> {
        let current = self.election.read(&self.leases).await?;
        match after_conflict(current.as_ref().map(observed).as_ref(), &self.election.identity) {
            AfterConflict::WriteAgain => {
                self.lease = current;
                Ok(true)
            }
            AfterConflict::Lost => Ok(false),
        }
    }

    /// Releases the Lease, so that the next leader need not wait for it to expire. All work must have stopped before.
    async fn resign(mut self) {
        self.until.send_replace(None);
        if let Err(error) = self.release().await {
            tracing::warn!(%error, "cannot release the Lease; it will expire");
        }
    }

    /// Writes a Lease without a holder unless another process holds it or it was deleted.
    async fn release(&mut self) -> Result<(), ManagementError> {
        while self.lease.is_some() {
            let written = self.election.write(&self.leases, self.lease.as_ref(), "").await?;
            if matches!(written, Written::Done(_)) || !self.read_after_conflict().await? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns whether a retry cannot succeed, such as without permissions or without the namespace.
fn is_permanent(error: &ManagementError) -> bool {
    let (ManagementError::Write { source, .. } | ManagementError::Read { source, .. }) = error;
    matches!(source, kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 404 | 422))
}

fn observed(lease: &Lease) -> ObservedLease {
    let spec = lease.spec.clone().unwrap_or_default();
    let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    ObservedLease {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
        duration: duration.map(Duration::from_secs),
    }
}

/// Returns the duration as a Lease states it, rounded up.
fn whole_seconds(duration: Duration) -> Option<i32> {
    let rest = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs() + rest).ok()
}

fn reading(election: &Election, source: kube::Error) -> ManagementError {
    ManagementError::Read { what: format!("Lease {}/{}", election.namespace, election.name), source }
}

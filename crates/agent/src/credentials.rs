//! The key of the agent, and its certificates: one per installation that it has joined.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex as StdMutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use chandler_tunnel::{
    CertificateFacts, HubEndpoint, TunnelId,
    authority::{AGENT_LIFETIME, AuthorityError, CertificateAndKey, generate_key_pem},
};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use crate::{
    backoff::hold_back,
    config::{Settings, token},
    dial::HttpProxy,
    join::{JoinError, join},
    renewal::{self, Action},
    state::StateDir,
};

/// A certificate that a hub seems to refuse is not replaced for this time after it was signed.
const NEW: Duration = Duration::from_mins(1);
/// No certificate is valid for longer. Its holder would not renew it for too long.
const LONGEST_VALIDITY: Duration = AGENT_LIFETIME.saturating_mul(2);

/// A certificate of the agent and its key.
#[derive(Debug)]
pub struct Certificate {
    pub pem: CertificateAndKey,
    pub facts: CertificateFacts,
}

/// The key and the certificates, which all connections share.
#[derive(Debug)]
pub struct Credentials {
    tunnel: TunnelId,
    key: SecretString,
    proxy: Option<HttpProxy>,
    state: StateDir,
    /// By the name of the authority that has issued the certificate.
    memberships: StdMutex<BTreeMap<String, SharedMembership>>,
    /// The authorities whose hubs have refused the certificate.
    refused: StdMutex<BTreeSet<String>>,
    /// How many connections were lost.
    losses: AtomicU64,
}

/// The lock is held while the agent joins, so that it joins each installation once, and no other installation has to wait.
type SharedMembership = Arc<Mutex<Membership>>;

#[derive(Debug, Default)]
struct Membership {
    certificate: Option<Arc<Certificate>>,
    /// When the certificate was signed, if that was in this run.
    signed: Option<Instant>,
    refusal: Option<Refusal>,
}

/// What a hub has answered to a request to join.
#[derive(Debug)]
struct Refusal {
    token: SecretString,
    /// The value of [`Credentials::losses`] at that time.
    losses: u64,
    message: String,
    until: Instant,
    /// Refusals of the same request before this one.
    earlier: u32,
}

impl Credentials {
    /// Reads the stored key and certificates. Creates the key if there is none: it never leaves this machine.
    pub fn open(settings: &Settings) -> Result<Self, JoinError> {
        let Settings { config, proxy, state, .. } = settings;
        let (key, certificates) = match state.key()? {
            Some(key) => (key.into(), state.certificates()?),
            // Certificates of a key that is lost are useless.
            None => (new_key(state)?, Vec::new()),
        };
        let mut memberships = BTreeMap::new();
        for pem in certificates {
            match read_certificate(pem, &key) {
                Ok(certificate) => {
                    let issuer = certificate.facts.issuer.clone();
                    let certificate = Some(Arc::new(certificate));
                    let membership = Membership { certificate, ..Membership::default() };
                    memberships.insert(issuer, Arc::new(Mutex::new(membership)));
                }
                Err(error) => tracing::warn!("a stored certificate is not used: {error}"),
            }
        }
        Ok(Self {
            tunnel: config.tunnel,
            key,
            proxy: proxy.clone(),
            state: state.clone(),
            memberships: StdMutex::new(memberships),
            refused: StdMutex::default(),
            losses: AtomicU64::default(),
        })
    }

    /// Returns the certificate for a hub. Joins or renews first if that is due; a renewal that fails is tried again later.
    pub async fn certificate(&self, hub: &HubEndpoint) -> Result<Arc<Certificate>, JoinError> {
        let (authority, membership) = self.membership(hub)?;
        let mut membership = membership.lock().await;
        let now = Timestamp::now();
        let current = membership.certificate.clone();
        let facts = current.as_deref().map(|certificate| &certificate.facts);
        // A hub also closes connections for other reasons: a certificate that is new is not replaced.
        let is_new = membership.signed.is_some_and(|signed| signed.elapsed() < NEW);
        let is_refused = self.refused_authorities().remove(&authority) && !is_new;
        let action = renewal::action(facts, self.tunnel, token(hub), is_refused, now);
        let result = match (action, &current) {
            (Action::Use, Some(certificate)) => return Ok(certificate.clone()),
            (Action::Renew, Some(certificate)) => {
                self.obtain(&mut membership, hub, Some(&certificate.pem)).await
            }
            _ => self.obtain(&mut membership, hub, None).await,
        };
        match (result, current) {
            (Err(error), Some(certificate)) if self.is_valid(&certificate.facts, now) => {
                tracing::warn!("the certificate was not renewed: {error}");
                Ok(certificate)
            }
            (result, _) => result,
        }
    }

    /// Returns the authority of a hub and what the agent has of it. Of several authorities in its CA bundle, the one that
    /// the agent has joined counts.
    fn membership(&self, hub: &HubEndpoint) -> Result<(String, SharedMembership), JoinError> {
        let names = names(hub)?;
        let mut memberships = self.memberships.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().find(|name| memberships.contains_key(*name)).or(names.first());
        let authority = known.cloned().ok_or_else(|| JoinError::Bundle(hub.address.clone()))?;
        let membership = memberships.entry(authority.clone()).or_default().clone();
        Ok((authority, membership))
    }

    fn is_valid(&self, facts: &CertificateFacts, now: Timestamp) -> bool {
        now < facts.not_after && facts.agent().is_ok_and(|identity| identity.tunnel == self.tunnel)
    }

    /// Notes that a hub has refused the certificate: the token is tried next, if it is still valid.
    pub fn note_refused(&self, hub: &HubEndpoint) {
        self.refused_authorities().extend(names(hub).unwrap_or_default());
    }

    /// Notes that a connection was lost. The cluster may have been moved, so hubs that have refused the agent so far are asked again
    /// soon.
    pub fn note_lost(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    fn refused_authorities(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins or renews, and stores the certificate.
    async fn obtain(
        &self,
        membership: &mut Membership,
        hub: &HubEndpoint,
        renewed: Option<&CertificateAndKey>,
    ) -> Result<Arc<Certificate>, JoinError> {
        let losses = self.losses.load(Ordering::Relaxed);
        membership.refusal = membership.refusal.take().filter(|refusal| refusal.is_of(hub, losses));
        if let Some(error) = membership.refusal.as_ref().and_then(Refusal::repeated) {
            return Err(error);
        }
        let result = self.join_and_store(hub, renewed).await;
        match &result {
            Ok(certificate) => {
                tracing::info!(hub = hub.address, until = %certificate.facts.not_after, "got a certificate");
                let certificate = Some(certificate.clone());
                *membership = Membership { certificate, signed: Some(Instant::now()), refusal: None };
            }
            Err(error) if error.is_refusal() => {
                let earlier =
                    membership.refusal.as_ref().map_or(0, |refusal| refusal.earlier.saturating_add(1));
                membership.refusal = Some(Refusal {
                    token: hub.token.clone(),
                    losses,
                    message: error.to_string(),
                    until: Instant::now() + hold_back(earlier, fastrand::f64()),
                    earlier,
                });
            }
            Err(_) => {}
        }
        result
    }

    async fn join_and_store(
        &self,
        hub: &HubEndpoint,
        renewed: Option<&CertificateAndKey>,
    ) -> Result<Arc<Certificate>, JoinError> {
        let pem = join(hub, &self.key, renewed, self.proxy.as_ref()).await?;
        let foreign = || JoinError::Foreign(hub.address.clone());
        let certificate = read_certificate(pem, &self.key).map_err(|_| foreign())?;
        let identity = certificate.facts.agent().map_err(|_| foreign())?;
        if identity.tunnel != self.tunnel || !names(hub)?.contains(&certificate.facts.issuer) {
            return Err(foreign());
        }
        let CertificateFacts { not_before, not_after, .. } = &certificate.facts;
        let validity = Duration::try_from(not_after.duration_since(*not_before)).unwrap_or_default();
        if validity > LONGEST_VALIDITY {
            return Err(JoinError::Validity(hub.address.clone(), *not_after));
        }
        let installation = identity.installation.to_string();
        if let Err(error) = self.state.set_certificate(&installation, &certificate.pem.certificate) {
            // The certificate is valid in this run. Another join would not help the disk.
            tracing::error!("the new certificate is not stored: {error}");
        }
        Ok(Arc::new(certificate))
    }
}

impl Refusal {
    /// Returns whether the same request was refused, and no connection was lost since.
    fn is_of(&self, hub: &HubEndpoint, losses: u64) -> bool {
        self.token.expose_secret() == hub.token.expose_secret() && self.losses == losses
    }

    /// Returns the error again if the request was refused a short time ago.
    fn repeated(&self) -> Option<JoinError> {
        let remaining = self.until.checked_duration_since(Instant::now())?;
        Some(JoinError::HeldBack { message: self.message.clone(), seconds: remaining.as_secs() + 1 })
    }
}

fn new_key(state: &StateDir) -> Result<SecretString, JoinError> {
    let key = generate_key_pem()?;
    state.set_key(key.expose_secret())?;
    Ok(key)
}

fn read_certificate(pem: String, key: &SecretString) -> Result<Certificate, AuthorityError> {
    let facts = CertificateFacts::from_pem(&pem)?;
    Ok(Certificate { pem: CertificateAndKey { certificate: pem, key: key.clone() }, facts })
}

/// Returns the names of the authorities of a hub. An authority has issued its own certificate.
fn names(hub: &HubEndpoint) -> Result<Vec<String>, JoinError> {
    let unreadable = || JoinError::Bundle(hub.address.clone());
    CertificateDer::pem_slice_iter(hub.ca_bundle.as_bytes())
        .map(|certificate| {
            let certificate = certificate.map_err(|_| unreadable())?;
            CertificateFacts::read(&certificate).map(|facts| facts.issuer).map_err(|_| unreadable())
        })
        .collect()
}

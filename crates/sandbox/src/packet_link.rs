//! A link between two network namespaces that delays, limits and loses IP packets, as a wide area network does.
//!
//! Each end is a TUN device, and a thread carries packets from one to the other. The kernel's own shaping (netem) is not
//! available everywhere. Linux on both ends sees real packets, so what its TCP does about losses is part of a test.

mod connections;
mod lane;
mod segment;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tun::Tun;
use tokio_util::sync::CancellationToken;

use self::connections::{Action, Connections};
use self::lane::{Fate, Lane};
use self::segment::Reset;
use crate::netns::{self, NetworkNamespace, SKIP_VARIABLE};

/// The namespace of this process, whatever that of the thread.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";
/// Packets of a device that have not been read yet. More than a link holds: only the link itself loses packets.
const DEVICE_QUEUE: &str = "10000";
/// Larger than any packet of a device with the usual MTU of 1,500 bytes.
const BUFFER: usize = 4 << 10;

/// An error while creating a link.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot create the TUN device {interface}: {source}; it needs root and /dev/net/tun (`modprobe tun`); \
         set {SKIP_VARIABLE}=1 to skip tests that need network namespaces"
    )]
    Device { interface: String, source: io::Error },
    #[error("cannot start the thread of a link: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Address(#[from] netns::Error),
}

/// What a link does to packets. It holds for each direction by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    pub megabits_per_second: u32,
    /// How long a packet is on its way, in addition to waiting for the rate: half of the round trip.
    pub delay: Duration,
    /// How long a packet may wait for those before it. One that would have to wait longer is lost.
    pub queue: Duration,
    /// The probability that a packet is lost.
    pub loss: f64,
    /// Determines which packets are lost.
    pub seed: u64,
}

impl Conditions {
    /// Returns a link without random losses, whose queue holds as much as the link itself.
    pub fn new(megabits_per_second: u32, round_trip: Duration) -> Self {
        Self { megabits_per_second, delay: round_trip / 2, queue: round_trip, loss: 0.0, seed: 1 }
    }

    /// Returns the same link with random losses.
    #[must_use]
    pub fn with_loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }
}

/// One end of a link.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// `None` means the namespace of this process.
    pub namespace: Option<&'a NetworkNamespace>,
    /// At most 15 characters.
    pub interface: &'a str,
    /// The address with the length of its prefix, such as `192.0.2.1/30`.
    pub address: &'a str,
}

impl End<'_> {
    fn device(&self) -> Device {
        let own = || PathBuf::from(OWN_NAMESPACE);
        let namespace = self.namespace.map_or_else(own, NetworkNamespace::path);
        Device { namespace, interface: self.interface.to_owned() }
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), netns::Error> {
        match self.namespace {
            Some(namespace) => namespace.ip(arguments),
            None => netns::ip(arguments),
        }
    }

    fn configure(&self) -> Result<(), netns::Error> {
        self.ip(&["address", "add", self.address, "dev", self.interface])?;
        self.ip(&["link", "set", "dev", self.interface, "txqueuelen", DEVICE_QUEUE, "up"])
    }
}

/// What a link has done with packets, in both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub delivered: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost because too many packets waited.
    pub overflowed: u64,
}

/// A link. Dropping it removes both devices.
#[derive(Debug)]
pub struct PacketLink {
    shared: Arc<Shared>,
    injected: mpsc::UnboundedSender<(usize, Reset)>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    connections: Mutex<Connections>,
    delivered: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PacketLink {
    /// Creates a device at each end and connects them. Blocks for some milliseconds.
    pub fn start(ends: [End<'_>; 2], conditions: Conditions) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let (injected, receiver) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let (created, is_created) = std::sync::mpsc::channel();
        let [one, other] = ends.each_ref().map(End::device);
        let relay = Relay { conditions, shared: shared.clone(), stop: stop.clone() };
        // A thread of its own: what a test does meanwhile must not delay packets.
        let thread = thread::Builder::new().name("packet-link".to_owned()).spawn(move || {
            let (result, devices) = match Devices::create(&one, &other) {
                Ok(devices) => (Ok(()), Some(devices)),
                Err(error) => (Err(error), None),
            };
            // Sending cannot fail: the other side waits.
            let _ = created.send(result);
            if let Some(devices) = devices {
                relay.run(&devices, receiver);
            }
        });
        let thread = Some(thread.map_err(Error::Thread)?);
        let link = Self { shared, injected, stop, thread };
        is_created.recv().map_err(|_| Error::Thread(io::Error::other("it has panicked")))??;
        for end in &ends {
            end.configure()?;
        }
        Ok(link)
    }

    pub fn counts(&self) -> Counts {
        let Shared { delivered, lost, overflowed, .. } = &*self.shared;
        let [delivered, lost, overflowed] =
            [delivered, lost, overflowed].map(|count| count.load(Ordering::Relaxed));
        Counts { delivered, lost, overflowed }
    }

    /// Resets all open TCP connections over IPv4. New ones work.
    pub fn reset_connections(&self) {
        for reset in self.shared.connections().reset() {
            // Sending fails only if the devices are gone.
            let _ = self.injected.send(reset);
        }
    }

    /// Loses all packets of the open TCP connections over IPv4 from now on, as a NAT does that has forgotten them. New
    /// connections work.
    pub fn forget_connections(&self) {
        self.shared.connections().forget();
    }
}

impl Drop for PacketLink {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}

/// What is needed to create the device of an end in another thread.
struct Device {
    namespace: PathBuf,
    interface: String,
}

impl Device {
    /// Creates the device in its namespace, in which the thread remains. The device ends with the result.
    fn create(&self) -> Result<Tun, Error> {
        let failed = |source| Error::Device { interface: self.interface.clone(), source };
        netns::enter(&self.namespace).map_err(failed)?;
        let mut queues =
            Tun::builder().name(&self.interface).build().map_err(io::Error::other).map_err(failed)?;
        queues.pop().ok_or_else(|| failed(io::Error::other("it has no queue")))
    }
}

/// Both devices, and the runtime of the thread that carries their packets.
struct Devices {
    tuns: [Tun; 2],
    runtime: Runtime,
}

impl Devices {
    fn create(one: &Device, other: &Device) -> Result<Self, Error> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let tuns = {
            let _entered = runtime.enter();
            [one.create()?, other.create()?]
        };
        Ok(Self { tuns, runtime })
    }
}

/// Carries packets between the devices.
struct Relay {
    conditions: Conditions,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Relay {
    /// Runs until the link is dropped, or a device is deleted.
    fn run(&self, devices: &Devices, injected: mpsc::UnboundedReceiver<(usize, Reset)>) {
        let Devices { tuns, runtime } = devices;
        let seed = self.conditions.seed.wrapping_mul(2);
        let [forth, back] = [0, 1].map(|end| Lane::new(self.conditions, seed.wrapping_add(end)));
        runtime.block_on(async {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = inject(tuns, injected) => {}
                Err(error) = self.carry(tuns, 0, forth) => tracing::warn!(%error, "a link has ended"),
                Err(error) = self.carry(tuns, 1, back) => tracing::warn!(%error, "a link has ended"),
            }
        });
    }

    /// Carries the packets that leave through the device of an end.
    async fn carry(&self, tuns: &[Tun; 2], end: usize, lane: Lane) -> io::Result<Infallible> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let delivered = self.deliver(&tuns[1 - end], receiver);
        tokio::select! {
            result = self.receive(&tuns[end], end, lane, sender) => result,
            () = delivered => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn receive(
        &self,
        from: &Tun,
        end: usize,
        mut lane: Lane,
        sender: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    ) -> io::Result<Infallible> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = from.recv(&mut buffer).await?;
            let packet = &buffer[..length];
            let action = self.shared.connections().receive(end, packet);
            match action {
                Action::Carry => {}
                Action::Discard => continue,
                Action::Answer(reset) => {
                    send(from, &reset).await;
                    continue;
                }
            }
            match lane.send(Instant::now(), length) {
                Fate::Arrives(at) => {
                    // The receiver lives as long as this loop. The queue of the lane limits what waits here.
                    let _ = sender.send((at, packet.to_vec()));
                }
                Fate::Lost => add(&self.shared.lost),
                Fate::Overflowed => add(&self.shared.overflowed),
            }
        }
    }

    async fn deliver(&self, to: &Tun, mut packets: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) {
        while let Some((at, packet)) = packets.recv().await {
            sleep_until(at).await;
            send(to, &packet).await;
            add(&self.shared.delivered);
        }
    }
}

/// Sends packets that do not come from the other end.
async fn inject(tuns: &[Tun; 2], mut packets: mpsc::UnboundedReceiver<(usize, Reset)>) {
    while let Some((end, packet)) = packets.recv().await {
        send(&tuns[end], &packet).await;
    }
}

async fn send(to: &Tun, packet: &[u8]) {
    // A device that is down loses packets.
    let _ = to.send(packet).await;
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

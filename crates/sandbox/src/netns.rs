//! Network namespaces, in which processes run as if they were on another machine.
//!
//! They are created with `ip` and need root. A test that cannot have them fails with [`Error::Unavailable`] rather than
//! pass without having checked anything.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// The folder in which `ip netns` names namespaces.
const NAMED: &str = "/var/run/netns";
/// Every namespace of these tests has a name that starts with this, followed by the PID of its owner.
const PREFIX: &str = "chandler-";
/// Setting this variable to `1` skips tests that need network namespaces.
pub const SKIP_VARIABLE: &str = "CHANDLER_SKIP_NETNS";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

static COUNTER: AtomicU32 = AtomicU32::new(1);

/// An error while creating or using a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "network namespaces need root and iproute2: {reason}; run the test as root, or set {SKIP_VARIABLE}=1 to skip it"
    )]
    Unavailable { reason: String },
    #[error("cannot run `ip {arguments}`: {reason}")]
    Ip { arguments: String, reason: String },
}

/// Returns whether tests with network namespaces are skipped explicitly.
pub fn is_skipped() -> bool {
    std::env::var(SKIP_VARIABLE).is_ok_and(|value| value == "1")
}

/// A network namespace. Dropping it deletes it with its interfaces.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
}

impl NetworkNamespace {
    /// Creates a namespace with a loopback interface only, which forwards no packets. Also deletes those of processes that
    /// have exited.
    pub fn create(label: &str) -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable { reason: "this process is not root".to_owned() });
        }
        delete_abandoned();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{label}-{number}", std::process::id());
        ip(&["netns", "add", &name]).map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        namespace.set("net/ipv4/ip_forward", "0")?;
        namespace.set("net/ipv6/conf/all/forwarding", "0")?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file that stands for the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        path(&self.name)
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), Error> {
        ip(&[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Adds a network that leads nowhere, with an address of this namespace.
    pub fn add_network(&self, interface: &str, address: &str) -> Result<(), Error> {
        // Not every kernel has dummy interfaces, so it is a pair of interfaces whose other end is unused.
        let peer = format!("{interface}p");
        self.ip(&["link", "add", interface, "type", "veth", "peer", "name", &peer])?;
        self.ip(&["link", "set", &peer, "up"])?;
        self.set_address(interface, address)
    }

    fn set_address(&self, interface: &str, address: &str) -> Result<(), Error> {
        self.ip(&["address", "add", address, "dev", interface])?;
        self.ip(&["link", "set", interface, "up"])
    }

    /// Sets a sysctl of the namespace.
    fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        let path = format!("/proc/sys/{name}");
        // A missing setting means that the kernel lacks the protocol.
        let script = format!("[ ! -e {path} ] || echo {value} > {path}");
        ip(&["netns", "exec", &self.name, "sh", "-c", &script])
    }

    /// Returns a command that runs in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // Another process may have deleted it.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// One end of a link between two namespaces.
pub struct LinkEnd<'a> {
    pub namespace: &'a NetworkNamespace,
    /// At most 15 characters.
    pub interface: &'a str,
    /// The address with the length of its prefix, such as `192.0.2.1/24`.
    pub address: &'a str,
}

/// Connects two namespaces by a pair of interfaces.
pub fn connect_namespaces(one: &LinkEnd<'_>, other: &LinkEnd<'_>) -> Result<(), Error> {
    let peer = ["peer", "name", other.interface, "netns", other.namespace.name()];
    let add = ["link", "add", one.interface, "type", "veth"];
    one.namespace.ip(&[add.as_slice(), peer.as_slice()].concat())?;
    for end in [one, other] {
        end.namespace.set_address(end.interface, end.address)?;
    }
    Ok(())
}

/// Runs `ip`, which must succeed.
pub fn ip(arguments: &[&str]) -> Result<(), Error> {
    let failed = |reason: String| Error::Ip { arguments: arguments.join(" "), reason };
    let output = Command::new("ip").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Deletes namespaces whose owner has exited: a killed process deletes none.
fn delete_abandoned() {
    let names = fs::read_dir(NAMED).into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another test process may be deleting it too.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// Returns the PID in the name of a namespace.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Runs a function in a thread of its own inside a namespace. Sockets that it opens stay in the namespace.
pub async fn run_in<T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path(namespace);
    let (sender, receiver) = oneshot::channel();
    // Not a thread of the runtime's pool: it would run other work in the namespace afterwards.
    thread::Builder::new().name("netns".to_owned()).spawn(move || {
        // Sending fails if the caller no longer waits.
        let _ = sender.send(enter(&path).and_then(|()| work()));
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn path(namespace: &str) -> PathBuf {
    Path::new(NAMED).join(namespace)
}

/// Moves this thread into a namespace.
pub(crate) fn enter(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Opens a connection from inside a namespace.
pub async fn connect(namespace: &str, address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = run_in(namespace, move || std::net::TcpStream::connect_timeout(&address, limit)).await?;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Opens the connections of a client from inside a namespace, so that nothing has to listen outside of it.
#[derive(Debug, Clone)]
pub struct Connector {
    namespace: String,
}

impl Connector {
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    async fn connect(self, server: Uri) -> io::Result<TokioIo<TcpStream>> {
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
        let host: IpAddr = host.parse().map_err(io::Error::other)?;
        let address = SocketAddr::new(host, server.port_u16().unwrap_or(443));
        let stream = connect(&self.namespace, address, CONNECT_TIMEOUT).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        Box::pin(self.clone().connect(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_these_tests_have_an_owner() {
        assert_eq!(owner("chandler-4711-hub-2"), Some(4711));
        assert_eq!(owner("chandler-hub"), None);
        assert_eq!(owner("cni-4711-hub"), None);
    }
}

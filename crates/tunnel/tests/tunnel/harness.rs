//! A hub and an agent that are connected by a pipe.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use chandler_tunnel::{
    AgentConnection, AgentHandler, Budget, CloseReason, OpenError, Pump, PumpError, Settings,
    join_message::{About, HubList},
    serve_agent,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Deadline of everything that a test waits for, on the virtual clock.
pub const LIMIT: Duration = Duration::from_hours(1);
pub const OPEN_LIMIT: Duration = Duration::from_secs(4);

/// What the target of an agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    Accept,
    Refuse,
    Hang,
}

pub struct TestAgent {
    dial: watch::Receiver<Dial>,
    dialed: mpsc::UnboundedSender<DuplexStream>,
    socket_buffer: usize,
    /// How many calls of `dial` are running.
    pub dialing: AtomicUsize,
    pub drained: AtomicUsize,
    pub replicas: mpsc::UnboundedSender<Option<String>>,
    pub configured: mpsc::UnboundedSender<HubList>,
}

struct Dialing<'a>(&'a AtomicUsize);

impl Drop for Dialing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AgentHandler for TestAgent {
    type Target = DuplexStream;

    async fn dial(&self) -> io::Result<DuplexStream> {
        self.dialing.fetch_add(1, Ordering::SeqCst);
        let _running = Dialing(&self.dialing);
        let behavior = *self.dial.borrow();
        match behavior {
            Dial::Accept => {
                let (near, far) = duplex(self.socket_buffer);
                self.dialed.send(far).unwrap();
                Ok(near)
            }
            Dial::Refuse => Err(io::ErrorKind::ConnectionRefused.into()),
            Dial::Hang => std::future::pending().await,
        }
    }

    fn about(&self, replica: Option<&str>) -> About {
        self.replicas.send(replica.map(str::to_owned)).unwrap();
        About { node: "node-1\nforged line".to_owned(), version: "v1".repeat(200) }
    }

    async fn configure(&self, hubs: HubList) -> Result<(), String> {
        if hubs.hubs.is_empty() {
            return Err("the list is empty".to_owned());
        }
        self.configured.send(hubs).unwrap();
        Ok(())
    }

    fn draining(&self) {
        self.drained.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sizes and settings of a tunnel.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
    pub budget: usize,
    pub wire_buffer: usize,
    pub socket_buffer: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::tunnel(),
            budget: 64 << 20,
            wire_buffer: 64 << 10,
            socket_buffer: 64 << 10,
        }
    }
}

/// A hub and an agent.
pub struct Tunnel {
    pub hub: AgentConnection,
    pub hub_pump: Pump,
    pub agent_pump: Pump,
    pub agent: Arc<TestAgent>,
    pub dial: watch::Sender<Dial>,
    pub dialed: mpsc::UnboundedReceiver<DuplexStream>,
    pub replicas: mpsc::UnboundedReceiver<Option<String>>,
    pub configured: mpsc::UnboundedReceiver<HubList>,
    pub shutdown: CancellationToken,
    pub serving: JoinHandle<CloseReason>,
    options: Options,
}

impl Tunnel {
    pub async fn start(options: Options) -> Self {
        let (hub, agent) = duplex(options.wire_buffer);
        Self::start_on(options, hub, agent).await
    }

    /// Starts a tunnel on a connection that exists.
    pub async fn start_on<H, A>(options: Options, hub_io: H, agent_io: A) -> Self
    where
        H: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (dial, dial_receiver) = watch::channel(Dial::Accept);
        let (dialed_sender, dialed) = mpsc::unbounded_channel();
        let (replica_sender, replicas) = mpsc::unbounded_channel();
        let (config_sender, configured) = mpsc::unbounded_channel();
        let agent = Arc::new(TestAgent {
            dial: dial_receiver,
            dialed: dialed_sender,
            socket_buffer: options.socket_buffer,
            dialing: AtomicUsize::new(0),
            drained: AtomicUsize::new(0),
            replicas: replica_sender,
            configured: config_sender,
        });
        let [hub_pump, agent_pump] = [(); 2].map(|()| Pump::new(Budget::new(options.budget)));
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn({
            let (agent, pump, shutdown) = (agent.clone(), agent_pump.clone(), shutdown.clone());
            let settings = options.settings.clone();
            async move { serve_agent(agent_io, agent, pump, &settings, &shutdown).await }
        });
        let hub = AgentConnection::start(hub_io, &options.settings).await.unwrap();
        Self {
            hub,
            hub_pump,
            agent_pump,
            agent,
            dial,
            dialed,
            replicas,
            configured,
            shutdown,
            serving,
            options,
        }
    }

    /// Opens a stream: the first end is the client's, the second the API server's.
    pub async fn connect(&mut self) -> Result<Connected, OpenError> {
        let stream = self.hub.open(OPEN_LIMIT).await?;
        let server = self.dialed.recv().await.unwrap();
        let (client, socket) = duplex(self.options.socket_buffer);
        let pump = self.hub_pump.clone();
        let pumping = tokio::spawn(async move { pump.run(stream, socket, Bytes::new()).await });
        Ok(Connected { client, server, pumping })
    }

    /// Waits until no byte waits in a buffer of this tunnel.
    pub async fn wait_for_empty_budgets(&self) {
        let empty = async {
            while self.hub_pump.budget().used() + self.agent_pump.budget().used() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(empty).await;
    }
}

/// An open connection through a tunnel.
pub struct Connected {
    pub client: DuplexStream,
    pub server: DuplexStream,
    pub pumping: JoinHandle<Result<(), PumpError>>,
}

impl Connected {
    /// Sends a message in both directions.
    pub async fn ping_pong(&mut self) {
        for (text, forward) in [(b"ping", true), (b"pong", false)] {
            let (from, to) = if forward {
                (&mut self.client, &mut self.server)
            } else {
                (&mut self.server, &mut self.client)
            };
            from.write_all(text).await.unwrap();
            let mut received = [0; 4];
            within(to.read_exact(&mut received)).await.unwrap();
            assert_eq!(&received, text);
        }
    }

    /// Closes both directions, and waits for the pump.
    pub async fn finish(mut self) {
        self.client.shutdown().await.unwrap();
        self.server.shutdown().await.unwrap();
        within(self.pumping).await.unwrap().unwrap();
    }
}

/// Waits for something that has to happen.
pub async fn within<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("it did not happen in time")
}

/// Runs a test on a runtime whose clock advances when every task waits.
pub fn run<F: Future>(test: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

/// Connects two pipes, and stops without closing anything when the token is canceled: a black hole.
pub fn relay(mut left: DuplexStream, mut right: DuplexStream, cut: CancellationToken) {
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut left, &mut right) => {}
            () = cut.cancelled() => std::future::pending().await,
        }
    });
}

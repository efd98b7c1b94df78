//! Real clusters on this machine: `chandler-sandbox up`, `status`, `down` and their neighbors.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chandler_cli_support::place::state_folder;
use chandler_sandbox::Sandbox;
use chandler_sandbox::assets::{Assets, Binary};
use chandler_sandbox::process::{Identity, last_lines};
use chandler_sandbox::progress::{self, Progress};
use chandler_sandbox::sandbox::{self, Folder, MANAGEMENT, Options};
use chandler_sandbox::state::{PlaneState, State};
use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::kubectl::{self, KubectlArgs};

/// The owner stops its processes in order, which may take each its grace.
const DOWN_LIMIT: Duration = Duration::from_mins(1);
const CHECK: Duration = Duration::from_secs(5);

/// Real Kubernetes clusters on this machine, without containers.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Bring up a management cluster with Cluster API, and workload clusters.
    Up(UpArgs),
    /// Find or build every program that a sandbox and its tests need, so that nothing has to be built later.
    Prepare,
    /// Print where a program of the sandbox is, such as `helm`; it is built if it is nowhere to be found.
    Which {
        /// The program
        program: String,
    },
    /// Show planes, endpoints, processes and memory.
    Status(StatusArgs),
    /// Print the kubeconfig of a cluster.
    Kubeconfig(KubeconfigArgs),
    /// Run the sandbox's kubectl on one of its clusters; kubectl is built on first use.
    Kubectl(KubectlArgs),
    /// Stop everything and remove its data.
    Down(DownArgs),
}

#[derive(Debug, Args)]
pub struct UpArgs {
    /// How many workload clusters there are to be.
    #[arg(long, default_value_t = 1)]
    clusters: u32,
    /// How many Nodes each new workload cluster has.
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    #[command(flatten)]
    place: Place,
    /// Stay, and stop everything on Ctrl-C.
    #[arg(long)]
    foreground: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: Place,
    /// For programs instead of people.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// `management`, a cluster such as `alpha`, or `namespace/name`.
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    place: Place,
    /// Keep the data: the next `up` brings the same clusters back.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
pub struct Place {
    /// Where the sandbox keeps everything [default: chandler/sandbox in the user's state directory].
    #[arg(long, env = "CHANDLER_SANDBOX_DIR", hide_env_values = true)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
}

impl Place {
    pub fn resolve(self) -> Result<PathBuf> {
        let dir = match self.dir {
            Some(dir) => dir,
            None => state_folder("sandbox")?,
        };
        // The processes run elsewhere and must find it.
        std::path::absolute(&dir).with_context(|| format!("{} is no usable path", dir.display()))
    }
}

pub async fn run(command: SandboxCommand) -> Result<()> {
    match command {
        SandboxCommand::Up(args) => up(args).await,
        SandboxCommand::Prepare => prepare().await,
        SandboxCommand::Which { program } => which(&program).await,
        SandboxCommand::Status(args) => status(args).await,
        SandboxCommand::Kubeconfig(args) => kubeconfig(args),
        SandboxCommand::Kubectl(args) => kubectl::run(args).await,
        SandboxCommand::Down(args) => down(args).await,
    }
}

async fn which(program: &str) -> Result<()> {
    let known = Binary::ALL.into_iter().find(|binary| binary.file_name() == program);
    let binary = known.with_context(|| {
        let names = Binary::ALL.map(Binary::file_name).join(", ");
        format!("the sandbox has no program {program}; it has {names}")
    })?;
    let assets = Assets::ensure(&[binary], progress::display().as_ref()).await?;
    println!("{}", assets.path(binary).display());
    Ok(())
}

async fn prepare() -> Result<()> {
    Assets::ensure_every_version(progress::display().as_ref()).await?;
    Ok(())
}

async fn up(args: UpArgs) -> Result<()> {
    let UpArgs { clusters, nodes, place, foreground } = args;
    let options = Options { dir: place.resolve()?, clusters, nodes };
    let folder = Folder::new(&options.dir);
    let progress = progress::display();
    if foreground {
        return own(&options, progress.as_ref()).await;
    }
    if let Some(owner) = folder.owner() {
        eprintln!("the sandbox is running already (process {})", owner.pid());
        let client = folder.management_client().await?;
        sandbox::ensure_clusters(&client, clusters, nodes).await?;
        sandbox::wait_ready(&client, clusters, progress.as_ref()).await?;
    } else {
        // Here rather than in the owner, so that a build shows its progress.
        Assets::ensure(&Binary::SANDBOX, progress.as_ref()).await?;
        let mut owner = start_owner(&folder, &options)?;
        follow(&folder, &mut owner, progress.as_ref()).await?;
    }
    print_next(&folder).await;
    Ok(())
}

/// The process everything belongs to.
async fn own(options: &Options, progress: &dyn Progress) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let assets = Assets::ensure(&Binary::SANDBOX, progress).await?;
    let work = async {
        let sandbox = Sandbox::up(&assets, options, progress).await?;
        let ready = sandbox.wait_ready(options.clusters, progress).await;
        Ok::<_, sandbox::Error>((sandbox, ready))
    };
    let (sandbox, ready) = tokio::select! {
        result = work => result?,
        // Dropping the half-made sandbox ends what it had started.
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let result = match ready {
        Ok(()) => {
            sandbox.folder().mark_ready()?;
            print_next(sandbox.folder()).await;
            tokio::select! {
                _ = terminate.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
                result = watch(&sandbox) => result,
            }
        }
        Err(error) => Err(error.into()),
    };
    progress.begin("stopping the sandbox", None);
    sandbox.down().await;
    progress.finish("stopping the sandbox");
    result
}

/// Returns when the management side is broken.
async fn watch(sandbox: &Sandbox) -> Result<()> {
    loop {
        tokio::time::sleep(CHECK).await;
        sandbox.check().await?;
    }
}

fn start_owner(folder: &Folder, options: &Options) -> Result<Child> {
    let log = folder.owner_log();
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    Command::new(std::env::current_exe().context("cannot find this program's own file")?)
        .args(["up", "--foreground"])
        .args(["--clusters", &options.clusters.to_string()])
        .args(["--nodes", &options.nodes.to_string()])
        .arg("--dir")
        .arg(&options.dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // So that Ctrl-C ends the waiting and not what is waited for.
        .process_group(0)
        .spawn()
        .context("the sandbox's process does not start")
}

/// Shows what the owner says until all is up.
async fn follow(folder: &Folder, owner: &mut Child, progress: &dyn Progress) -> Result<()> {
    let identity = Identity::of(owner.id()).context("the sandbox's process ended at once")?;
    let mut log = LogLines::open(folder)?;
    let mut step: Option<String> = None;
    while !folder.is_ready(&identity) {
        if let Some(status) = owner.try_wait()? {
            bail!("the sandbox did not come up ({status}):\n{}", last_lines(&folder.owner_log(), 20));
        }
        if let Some(line) = log.next_step()? {
            if let Some(done) = step.take() {
                progress.finish(&done);
            }
            progress.begin(&line, None);
            step = Some(line);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if let Some(done) = step {
        progress.finish(&done);
    }
    Ok(())
}

/// The owner's log as it grows.
struct LogLines {
    file: File,
    position: u64,
}

impl LogLines {
    fn open(folder: &Folder) -> Result<Self> {
        let path = folder.owner_log();
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { file, position: 0 })
    }

    /// The last step that began since the last look.
    fn next_step(&mut self) -> Result<Option<String>> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(self.position))?;
        self.position += u64::try_from(self.file.read_to_string(&mut text)?)?;
        let mut steps = text.lines().filter_map(|line| line.strip_suffix(" …"));
        Ok(steps.next_back().map(str::to_owned))
    }
}

async fn print_next(folder: &Folder) {
    let state = State::read(folder).await;
    let place = other_place(folder);
    let memory = mebibytes(state.memory_bytes());
    println!("\nThe sandbox is up, using {memory}:");
    for plane in &state.planes {
        println!("  {:<16} {}", plane.name, plane.endpoint);
    }
    println!("\nTalk to the management cluster:");
    println!("  chandler-sandbox kubectl{place} get clusters -A");
    if let Some(cluster) = state.planes.iter().find(|plane| plane.name != MANAGEMENT) {
        println!("Talk to a workload cluster:");
        println!("  chandler-sandbox kubectl{place} --cluster {} get nodes", cluster.name);
    }
    println!("Use other clients:");
    println!("  export KUBECONFIG={}", folder.plane(MANAGEMENT).join("kubeconfig").display());
    println!("See what runs, and stop it all:");
    println!("  chandler-sandbox status{place}");
    println!("  chandler-sandbox down{place}");
}

/// What later commands need to find a sandbox that is not in its usual place.
fn other_place(folder: &Folder) -> String {
    match state_folder("sandbox") {
        Ok(usual) if usual == folder.root() => String::new(),
        _ => format!(" --dir {}", folder.root().display()),
    }
}

async fn status(args: StatusArgs) -> Result<()> {
    let StatusArgs { place, output } = args;
    let state = State::read(&Folder::new(&place.resolve()?)).await;
    match output {
        Some(Output::Json) => println!("{}", state.to_json()?),
        Some(Output::Yaml) => print!("{}", state.to_yaml()?),
        None => print_state(&state),
    }
    Ok(())
}

fn print_state(state: &State) {
    let Some(owner) = state.owner else {
        println!("not running; `chandler-sandbox up` starts it");
        return;
    };
    println!("running, process {owner}, {}\n", mebibytes(state.memory_bytes()));
    println!("{:<20} {:<26} {:<10} {:>10}", "NAME", "ENDPOINT", "AVAILABLE", "MEMORY");
    for plane in &state.planes {
        let memory = mebibytes(plane.memory_bytes());
        println!("{:<20} {:<26} {:<10} {memory:>10}", plane.name, plane.endpoint, availability(plane));
        for process in &plane.processes {
            let memory = mebibytes(process.memory_bytes);
            println!("  {:<24} pid {:<36} {memory:>10}", process.name, process.pid);
        }
    }
}

fn availability(plane: &PlaneState) -> &'static str {
    match plane.available {
        Some(true) => "yes",
        Some(false) => "not yet",
        None => "-",
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn kubeconfig(args: KubeconfigArgs) -> Result<()> {
    let KubeconfigArgs { name, place } = args;
    let folder = Folder::new(&place.resolve()?);
    let path = kubeconfig_path(&folder, &name)?;
    let yaml = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    print!("{yaml}");
    Ok(())
}

/// Where the kubeconfig of a cluster is.
pub fn kubeconfig_path(folder: &Folder, cluster: &str) -> Result<PathBuf> {
    let path = folder.plane(cluster).join("kubeconfig");
    ensure!(
        path.is_file(),
        "there is no cluster {cluster}; `chandler-sandbox status{}` shows which there are",
        other_place(folder)
    );
    Ok(path)
}

async fn down(args: DownArgs) -> Result<()> {
    let DownArgs { place, keep } = args;
    let folder = Folder::new(&place.resolve()?);
    let progress = progress::display();
    progress.begin("stopping the sandbox", None);
    let stopping = folder.clone();
    tokio::task::spawn_blocking(move || {
        if let Some(owner) = stopping.owner() {
            owner.end(DOWN_LIMIT);
        }
        stopping.end_orphans();
    })
    .await?;
    if !keep {
        folder.remove()?;
    }
    progress.finish("stopping the sandbox");
    println!("the sandbox is down");
    Ok(())
}

//! The commands that manage a sandbox: `chandler-sandbox up`, `status`, `down` and others.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chandler_cli_support::user_dirs::state_folder;
use chandler_sandbox::Sandbox;
use chandler_sandbox::assets::{Assets, Binary};
use chandler_sandbox::process::{Identity, last_lines};
use chandler_sandbox::progress::{self, ProgressReporter};
use chandler_sandbox::sandbox::{self, Folder, MANAGEMENT, Options};
use chandler_sandbox::state::{PlaneState, State};
use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::kubectl::{self, KubectlArgs};

/// The grace period of the owner, which stops its processes one after the other.
const DOWN_GRACE_PERIOD: Duration = Duration::from_mins(1);
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Real Kubernetes clusters on this machine, without containers.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Start a management cluster with Cluster API, and workload clusters.
    Up(UpArgs),
    /// Find or build all programs that the sandbox and its tests need.
    Prepare,
    /// Print the path of a program of the sandbox, such as `helm`; builds it if it is missing.
    Which {
        /// Name of the program
        program: String,
    },
    /// Show clusters, endpoints, processes and memory usage.
    Status(StatusArgs),
    /// Print the kubeconfig of a cluster.
    Kubeconfig(KubeconfigArgs),
    /// Run kubectl against a cluster of the sandbox; kubectl is built on first use.
    Kubectl(KubectlArgs),
    /// Stop the sandbox and remove its data.
    Down(DownArgs),
}

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Number of workload clusters.
    #[arg(long, default_value_t = 1)]
    clusters: u32,
    /// Number of Nodes of each new workload cluster.
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    #[command(flatten)]
    dir: DirArgs,
    /// Run in the foreground, and stop the sandbox on Ctrl-C.
    #[arg(long)]
    foreground: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Output format [default: a table].
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// `management`, the name of a cluster such as `alpha`, or `namespace/name`.
    name: String,
    #[command(flatten)]
    dir: DirArgs,
}

#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Keep the data, so that the next `up` starts the same clusters.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
pub struct DirArgs {
    /// Folder of the sandbox [default: chandler/sandbox in the user's state directory].
    #[arg(long, env = "CHANDLER_SANDBOX_DIR", hide_env_values = true)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
}

impl DirArgs {
    /// Returns the folder as an absolute path, because processes of the sandbox have other working directories.
    pub fn resolve(self) -> Result<PathBuf> {
        let dir = match self.dir {
            Some(dir) => dir,
            None => state_folder("sandbox")?,
        };
        std::path::absolute(&dir).with_context(|| format!("{} is not a valid path", dir.display()))
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
        format!("unknown program {program}; the programs are {names}")
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
    let UpArgs { clusters, nodes, dir, foreground } = args;
    let options = Options { dir: dir.resolve()?, clusters, nodes };
    let folder = Folder::new(&options.dir);
    let progress = progress::display();
    if foreground {
        return run_owner(&options, progress.as_ref()).await;
    }
    if let Some(owner) = folder.owner() {
        eprintln!("the sandbox is already running (process {})", owner.pid());
        let client = folder.management_client().await?;
        sandbox::ensure_clusters(&client, clusters, nodes).await?;
        sandbox::wait_ready(&client, clusters, progress.as_ref()).await?;
    } else {
        // Missing programs are built here instead of in the owner, so that the progress is shown.
        Assets::ensure(&Binary::SANDBOX, progress.as_ref()).await?;
        let mut owner = start_owner(&folder, &options)?;
        wait_owner_ready(&folder, &mut owner, progress.as_ref()).await?;
    }
    print_next_steps(&folder).await;
    Ok(())
}

/// Runs the sandbox in this process until it receives a signal.
async fn run_owner(options: &Options, progress: &dyn ProgressReporter) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let assets = Assets::ensure(&Binary::SANDBOX, progress).await?;
    let start = async {
        let sandbox = Sandbox::up(&assets, options, progress).await?;
        let ready = sandbox.wait_ready(options.clusters, progress).await;
        Ok::<_, sandbox::Error>((sandbox, ready))
    };
    let (sandbox, ready) = tokio::select! {
        result = start => result?,
        // Dropping the future kills the processes that were started.
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let result = match ready {
        Ok(()) => {
            sandbox.folder().mark_ready()?;
            print_next_steps(sandbox.folder()).await;
            tokio::select! {
                _ = terminate.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
                result = wait_failed(&sandbox) => result,
            }
        }
        Err(error) => Err(error.into()),
    };
    progress.begin("stopping the sandbox", None);
    sandbox.down().await;
    progress.finish("stopping the sandbox");
    result
}

/// Waits until a process of the management cluster has exited, and returns the error.
async fn wait_failed(sandbox: &Sandbox) -> Result<()> {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        sandbox.check().await?;
    }
}

fn start_owner(folder: &Folder, options: &Options) -> Result<Child> {
    let log = folder.owner_log();
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    Command::new(std::env::current_exe().context("cannot find the path of this program")?)
        .args(["up", "--foreground"])
        .args(["--clusters", &options.clusters.to_string()])
        .args(["--nodes", &options.nodes.to_string()])
        .arg("--dir")
        .arg(&options.dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C stops only this process, not the sandbox.
        .process_group(0)
        .spawn()
        .context("cannot start the process of the sandbox")
}

/// Shows the progress of the owner until all clusters are up.
async fn wait_owner_ready(folder: &Folder, owner: &mut Child, progress: &dyn ProgressReporter) -> Result<()> {
    let identity = Identity::of(owner.id()).context("the process of the sandbox exited immediately")?;
    let mut log = LogLines::open(folder)?;
    let mut step: Option<String> = None;
    while !folder.is_ready(&identity) {
        if let Some(status) = owner.try_wait()? {
            bail!("the sandbox did not start ({status}):\n{}", last_lines(&folder.owner_log(), 20));
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

/// A reader of the owner's log.
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

    /// Returns the last step that has started since the last call.
    fn next_step(&mut self) -> Result<Option<String>> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(self.position))?;
        self.position += u64::try_from(self.file.read_to_string(&mut text)?)?;
        let mut steps = text.lines().filter_map(|line| line.strip_suffix(" …"));
        Ok(steps.next_back().map(str::to_owned))
    }
}

async fn print_next_steps(folder: &Folder) {
    let state = State::read(folder).await;
    let dir_option = dir_option(folder);
    let memory = mebibytes(state.memory_bytes());
    println!("\nThe sandbox is running and uses {memory} of memory:");
    for plane in &state.planes {
        println!("  {:<16} {}", plane.name, plane.endpoint);
    }
    println!("\nUse the management cluster:");
    println!("  chandler-sandbox kubectl{dir_option} get clusters -A");
    if let Some(cluster) = state.planes.iter().find(|plane| plane.name != MANAGEMENT) {
        println!("Use a workload cluster:");
        println!("  chandler-sandbox kubectl{dir_option} --cluster {} get nodes", cluster.name);
    }
    println!("Use other clients:");
    println!("  export KUBECONFIG={}", folder.plane(MANAGEMENT).join("kubeconfig").display());
    println!("Show the status, and stop the sandbox:");
    println!("  chandler-sandbox status{dir_option}");
    println!("  chandler-sandbox down{dir_option}");
}

/// Returns the option `--dir` for later commands, or nothing if the sandbox is in its default folder.
fn dir_option(folder: &Folder) -> String {
    match state_folder("sandbox") {
        Ok(default) if default == folder.root() => String::new(),
        _ => format!(" --dir {}", folder.root().display()),
    }
}

async fn status(args: StatusArgs) -> Result<()> {
    let StatusArgs { dir, output } = args;
    let state = State::read(&Folder::new(&dir.resolve()?)).await;
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
    let KubeconfigArgs { name, dir } = args;
    let folder = Folder::new(&dir.resolve()?);
    let path = kubeconfig_path(&folder, &name)?;
    let yaml = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    print!("{yaml}");
    Ok(())
}

/// Returns the path of a cluster's kubeconfig.
pub fn kubeconfig_path(folder: &Folder, cluster: &str) -> Result<PathBuf> {
    let path = folder.plane(cluster).join("kubeconfig");
    ensure!(
        path.is_file(),
        "there is no cluster {cluster}; `chandler-sandbox status{}` lists the clusters",
        dir_option(folder)
    );
    Ok(path)
}

async fn down(args: DownArgs) -> Result<()> {
    let DownArgs { dir, keep } = args;
    let folder = Folder::new(&dir.resolve()?);
    let progress = progress::display();
    progress.begin("stopping the sandbox", None);
    let stopping = folder.clone();
    tokio::task::spawn_blocking(move || {
        if let Some(owner) = stopping.owner() {
            owner.terminate(DOWN_GRACE_PERIOD);
        }
        stopping.terminate_orphans();
    })
    .await?;
    if !keep {
        folder.remove()?;
    }
    progress.finish("stopping the sandbox");
    println!("the sandbox is stopped");
    Ok(())
}

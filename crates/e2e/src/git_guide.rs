//! Runs the commands of a guide that uses a Git repository, as a user would.

use std::{cell::RefCell, collections::BTreeSet, path::Path, time::Duration};

use chandler_sandbox::git_server::GitServer;

use crate::{
    shell::{Shell, text},
    world::World,
};

/// Longer than any command of a guide takes, including those that wait for a cluster.
const LIMIT: Duration = Duration::from_mins(6);
/// The repository of the guides.
const REPOSITORY: &str = "https://git.example/fleet.git";

/// A guide, a shell for its commands, and a server for its repository. The namespace `fleet` of the guide is that of the test.
pub struct GitGuide {
    page: String,
    namespace: String,
    environment: Vec<(&'static str, String)>,
    pub shell: Shell,
    git: GitServer,
    /// The commands of the page that were run.
    completed: RefCell<BTreeSet<String>>,
}

impl GitGuide {
    /// Serves an empty repository for a page below `docs/guides`.
    pub async fn new(world: &World, page: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let served = world.dir.join("served");
        let git = GitServer::start(world.sandbox.authority(), &served).await.unwrap();
        git.create("fleet").await.unwrap();
        let shell = Shell::new(page).await;
        std::os::unix::fs::symlink(root.join("examples"), shell.home.join("examples")).unwrap();
        std::fs::write(shell.home.join("ca.crt"), git.ca_pem()).unwrap();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let kubeconfig = text(&world.sandbox.management().kubeconfig_path());
        let user = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let environment = [
            ("KUBECONFIG", kubeconfig),
            ("HOME", text(&shell.home)),
            ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            // The server does not accept pushes: git uses the folder instead.
            ("GIT_CONFIG_COUNT", "1".to_owned()),
            ("GIT_CONFIG_KEY_0", format!("url.{}.insteadOf", served.join("fleet.git").display())),
            ("GIT_CONFIG_VALUE_0", REPOSITORY.to_owned()),
        ]
        .into_iter()
        .chain(user.map(|name| (name, "anna@example.com".to_owned())))
        .collect();
        let page = std::fs::read_to_string(root.join("docs/guides").join(format!("{page}.md"))).unwrap();
        Self {
            page,
            namespace: world.namespace.clone(),
            environment,
            shell,
            git,
            completed: RefCell::default(),
        }
    }

    /// Returns a text of the guide or of its example with the namespace and the repository of the test.
    pub fn localize(&self, text: &str) -> String {
        let namespace = &self.namespace;
        text.replace("namespace: fleet", &format!("namespace: {namespace}"))
            .replace("--namespace fleet", &format!("--namespace {namespace}"))
            .replace("  name: fleet\n", &format!("  name: {namespace}\n"))
            .replace(REPOSITORY, &self.git.url("fleet"))
    }

    /// Changes a file of the user as the guide asks for in its text.
    pub fn localize_file(&self, name: &str) {
        let path = self.shell.home.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, self.localize(&text)).unwrap();
    }

    /// Runs the commands of a section that start with one of the prefixes, in order. Returns the output of the last one.
    pub async fn run(&self, section: &str, prefixes: &[&str]) -> String {
        let commands = commands(&self.page, |heading| heading == section);
        let chosen = commands.iter().filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)));
        let mut output = None;
        for line in chosen {
            output = Some(self.command(line).await);
            self.completed.borrow_mut().insert(line.clone());
        }
        output.unwrap_or_else(|| panic!("section {section} has none of the commands {prefixes:?}"))
    }

    /// Runs all commands of a section, in order. Returns the output of the last one.
    pub async fn run_all(&self, section: &str) -> String {
        self.run(section, &[""]).await
    }

    /// Fails if the page contains commands that were not run.
    pub fn assert_complete(&self) {
        let all: BTreeSet<String> = commands(&self.page, |_| true).into_iter().collect();
        assert_eq!(*self.completed.borrow(), all, "every command of the guide is run");
    }

    /// Runs a command, which must succeed, and returns its output.
    pub async fn command(&self, line: &str) -> String {
        // Only the namespace: git resolves the URL itself.
        let line = line.replace("--namespace fleet", &format!("--namespace {}", self.namespace));
        let line = format!("cd {} && {line}", self.shell.home.display());
        let environment: Vec<_> = self.environment.iter().map(|(name, value)| (*name, &**value)).collect();
        let output = self.shell.run(&line, &environment, LIMIT).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{line}` failed:\n{stdout}\n{stderr}");
        stdout
    }
}

/// Returns the commands in the code blocks of the sections with these headings.
fn commands(page: &str, is_chosen: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut heading, mut block, mut commands) = ("", None, Vec::new());
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            block = if block.is_none() { Some(language) } else { None };
        } else if block == Some("") && is_chosen(heading) {
            commands.push(line.to_owned());
        } else if let (None, Some(title)) = (block, line.strip_prefix("## ")) {
            heading = title;
        }
    }
    commands
}

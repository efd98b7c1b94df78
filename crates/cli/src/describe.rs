//! `chandler describe`: one placement, release or cluster in depth.

mod tree;

use anyhow::Result;
use chandler_view::{
    description::{Description, Target},
    fleet::Reader,
};
use clap::Args;
use jiff::Timestamp;

use crate::{
    connection::Connection,
    output::{Screen, Structured},
    progress::Progress,
};

#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// A placement's name, or KIND/NAME with a kind such as `hcp`, `instance` or `release`
    #[arg(required_unless_present = "cluster", value_name = "[KIND/]NAME")]
    name: Option<String>,
    /// Only this cluster; without a name, everything on it
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace to look at [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// For programs instead of people
    #[arg(short, long, value_enum)]
    output: Option<Structured>,
}

pub async fn run(arguments: DescribeArgs) -> Result<()> {
    let DescribeArgs { name, cluster, namespace, connection, output } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let target = name.as_deref().map(Target::parse).transpose()?;
    let fleet = Reader::new(client, Some(namespace.clone())).fleet(&Progress::start()).await?;
    let description = match target {
        Some(target) => target.choose(&fleet, &namespace)?.describe(&fleet, cluster.as_deref()),
        None => Description::of_cluster(&fleet, &namespace, &cluster.unwrap_or_default())?,
    };
    let text = match output {
        Some(format) => format.text(&description)?,
        None => tree::text(&description, Screen::detect(), Timestamp::now()),
    };
    print!("{text}");
    Ok(())
}

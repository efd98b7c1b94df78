//! `chandler describe`: the details of a placement, a release or a cluster.

mod tree;

use anyhow::Result;
use chandler_view::{
    description::{Description, ResourceArgument},
    fleet::FleetReader,
};
use clap::Args;
use jiff::Timestamp;

use crate::{
    connection::Connection,
    output::{Screen, StructuredFormat},
    progress::Progress,
};

#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// Name of a placement, or KIND/NAME with a kind such as `hcp`, `instance` or `release`
    #[arg(required_unless_present = "cluster", value_name = "[KIND/]NAME")]
    name: Option<String>,
    /// Show only the releases on this cluster; without NAME, show all of them
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace of the objects [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

pub async fn run(arguments: DescribeArgs) -> Result<()> {
    let DescribeArgs { name, cluster, namespace, connection, output } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let argument = name.as_deref().map(ResourceArgument::parse).transpose()?;
    let fleet = FleetReader::new(client, Some(namespace.clone())).read(&Progress::start()).await?;
    let description = match argument {
        Some(argument) => argument.find(&fleet, &namespace)?.describe(&fleet, cluster.as_deref()),
        None => Description::of_cluster(&fleet, &namespace, &cluster.unwrap_or_default())?,
    };
    let text = match output {
        Some(format) => format.text(&description)?,
        None => tree::text(&description, Screen::detect(), Timestamp::now()),
    };
    print!("{text}");
    Ok(())
}

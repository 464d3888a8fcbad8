//! `umbel serve`: resolves settings and runs a node until it is stopped.

mod job_settings;
mod logs;
mod node_jobs;
mod settings;
mod signals;
mod unknown_variables;

use crate::exit::{Exit, UsageError};
use crate::stderr::{eprint_line, eprint_text};
use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use node_jobs::{FileWorkshops, NodeJobs};
use settings::{Layer, Settings, about};
use signals::StopSignal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use toml::{Table, Value};
use umbel_client::{KeyPairFiles, TlsFiles};
use umbel_gateway::{RenderMetrics, client_interface};
use umbel_node::config::addresses_meet;
use umbel_node::ports::Ports;
use umbel_node::{
    CORE_COUNT_MAX, Config, HISTOGRAMS, Node, StartError, enrol, warn_of_other_cluster,
    warn_of_refused_certificate,
};
use umbel_ports::{
    IssuedFiles, NodeSigner, TlsNet, WrappingKey, memory_limit_bytes, raise_descriptor_limit,
};
use umbel_tls::check_private;

/// How often recorded samples are moved into their histograms' buckets, so that few accumulate while
/// nobody reads the metrics.
const METRICS_UPKEEP: Duration = Duration::from_secs(1);

/// The default address of a Redis server.
const REDIS_ADDRESS: &str = "127.0.0.1:6379";

/// Cores that the process may use, at most `CORE_COUNT_MAX`; 0 if the system does not report it.
fn core_count() -> u32 {
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    u32::try_from(count).map_or(CORE_COUNT_MAX, |count| count.min(CORE_COUNT_MAX))
}

/// Arguments of `umbel serve`.
#[derive(Args)]
#[command(
    after_help = "Settings: --config FILE, then UMBEL_* variables, then flags; later ones win.\nSIGTERM, SIGHUP or ctrl-c stops the server; a second one ends it at once.\n\n\
    Examples:\n  \
      umbel serve --dev\n  \
      umbel serve --listen 127.0.0.1:7301 --data n1 --initial-cluster 127.0.0.1:7301,127.0.0.1:7302\n  \
      umbel serve --config /etc/umbel.toml --join 10.0.0.1:7300\n\n\
    docs/cluster.md has every detail.\n\
    Exit codes: 0 stopped when asked, 1 failed, 2 wrong settings, 130 ended by a second signal."
)]
pub(crate) struct ServeArgs {
    #[arg(long, help = about("dev"))]
    dev: bool,
    #[arg(long, value_name = "HOST:PORT", help = about("listen"))]
    listen: Option<String>,
    /// Where to listen for the Redis protocol (docs/redis.md)
    #[arg(long, value_name = "HOST:PORT")]
    resp: Option<String>,
    /// Pages at /console: off, read-only, proven (the default) or full (docs/console.md)
    #[arg(long, value_name = "MODE")]
    console: Option<String>,
    #[arg(long, value_name = "HOST:PORT", help = about("advertise"))]
    advertise: Option<String>,
    #[arg(long, value_name = "DIR", help = about("data"))]
    data: Option<String>,
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', help = about("initial_cluster"))]
    initial_cluster: Vec<String>,
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "initial_cluster", help = about("join"))]
    join: Option<String>,
    #[arg(long, value_name = "FILE", help = about("join_token_file"))]
    join_token_file: Option<String>,
    #[arg(long, value_name = "N", help = about("shards"))]
    shards: Option<u32>,
    #[arg(long, value_name = "N", help = about("replicas"))]
    replicas: Option<u32>,
    #[arg(long, value_name = "DIR,..", value_delimiter = ',', help = about("job_roots"))]
    job_roots: Vec<String>,
    /// Rack or zone that this node fails together with (docs/cluster.md)
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Acknowledge inserts before they are on disk; power failures lose some
    #[arg(long = "no-fsync", action = ArgAction::SetFalse)]
    fsync: bool,
    #[arg(long, help = about("insecure"))]
    insecure: bool,
    #[arg(long, value_name = "FILE", help = about("tls_cert"))]
    tls_cert: Option<String>,
    #[arg(long, value_name = "FILE", help = about("tls_key"))]
    tls_key: Option<String>,
    #[arg(long, value_name = "FILE", help = about("tls_ca"))]
    tls_ca: Option<String>,
    #[arg(long, value_name = "FILE", help = about("key_file"))]
    key_file: Option<String>,
    #[arg(long, value_name = "FILE", help = about("tls_ca_key"))]
    tls_ca_key: Option<String>,
    /// Read settings from this TOML file [env: UMBEL_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every setting with its meaning and value, as a file for --config, and exit
    #[arg(long)]
    print_config: bool,
    #[arg(long, value_name = "FORMAT", help = about("log_format"))]
    log_format: Option<String>,
}

/// Runs the command.
///
/// # Errors
///
/// A [`UsageError`] if settings are wrong; else the error that stopped the node.
pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    // Before the settings are checked: a misspelt one may be what they lack.
    unknown_variables::warnings(std::env::vars_os().map(|(name, _)| name))
        .iter()
        .for_each(eprint_line);
    let mut settings = args.settings()?;
    if args.print_config {
        return print(&settings.print());
    }
    let signal = StopSignal::install()?;
    raise_descriptor_limit();
    logs::start(&settings.logs)?;
    let folder = temporary_folder(&settings)?;
    if let Some(folder) = &folder {
        folder
            .path()
            .to_str()
            .context("the temporary folder's name is not UTF-8")?
            .clone_into(&mut settings.node.data);
    }
    if settings.node.memory_limit_bytes == 0 {
        settings.node.memory_limit_bytes = memory_limit_bytes();
    }
    if settings.node.cores == 0 {
        settings.node.cores = core_count();
    }
    let metrics = recorder().context("cannot count metrics")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let jobs = job_settings::node_jobs(&settings)?;
    let outcome = runtime.block_on(serve(settings.node, jobs, metrics, signal));
    // Tasks that still run have nothing left to report.
    runtime.shutdown_background();
    outcome
}

/// Installs the recorder of metrics, which counts from here on.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in HISTOGRAMS {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
    }
    builder.install_recorder()
}

fn print(text: &str) -> Result<Exit> {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(Exit::Done),
    }
}

/// A temporary data folder for a development cluster, unless the settings name a data folder.
fn temporary_folder(settings: &Settings) -> Result<Option<TempDir>> {
    if !settings.node.dev || settings.names_data {
        return Ok(None);
    }
    let folder = tempfile::Builder::new()
        .prefix("umbel-dev-")
        .tempdir()
        .context("cannot make a temporary data folder")?;
    eprint_line(format_args!("data is kept in {} until the end", folder.path().display()));
    Ok(Some(folder))
}

async fn serve(
    config: Config,
    jobs: Option<Arc<NodeJobs>>,
    metrics: PrometheusHandle,
    mut signal: StopSignal,
) -> Result<Exit> {
    let issued = issued_files(&config);
    if issued.as_ref().is_some_and(|files| !files.certificate().exists()) {
        tokio::select! {
            biased;
            () = signal.asked() => return Ok(Exit::Done),
            enrolled = enrol(&config) => enrolled?,
        }
    }
    let mut ports = Ports::real(Path::new(&config.data))
        .with_context(|| format!("{}: cannot use this data folder", config.data))?;
    if let Some(net) = tls_net(&config)? {
        ports.net = Arc::new(net);
    }
    if let Some(path) = &config.key_file {
        let key = WrappingKey::read(Path::new(path));
        let key = key.map_err(|error| UsageError(format!("key_file: {error}")))?;
        ports.wrapping = Some(Arc::new(key));
    }
    ports.workshops = jobs.map(|jobs| Arc::new(FileWorkshops(jobs)) as _);
    let rendered = metrics.clone();
    let render: RenderMetrics = Arc::new(move || rendered.render());
    tokio::spawn(keep_metrics_small(metrics));
    let (known, asked) = (config.clone(), ports.clone());
    let node = tokio::select! {
        biased;
        () = signal.asked() => return Ok(Exit::Done),
        node = start(config, ports, render) => node?,
    };
    let (node, without_redis) = node;
    tokio::spawn(warn_of_other_cluster(known, asked, node.cluster()));
    let (address, id, cluster) = (node.address(), node.id(), node.cluster());
    eprint_text(format_args!("listening on {address}, {id} of cluster {cluster:032x}\n"));
    if let Some(address) = node.resp_address() {
        eprint_text(format_args!("speaking the Redis protocol on {address}\n"));
    }
    if let Some(why) = without_redis {
        eprint_text(format_args!(
            "not speaking the Redis protocol: {REDIS_ADDRESS}: {why}; --resp HOST:PORT names another \
             address\n"
        ));
    }
    let outcome = tokio::select! {
        biased;
        () = signal.asked() => Ok(()),
        outcome = node.stopped() => outcome,
    };
    node.shutdown().await;
    outcome?;
    Ok(Exit::Done)
}

/// Starts the node. A development cluster without a configured Redis address listens on Redis's default
/// address; if that is taken, the node starts without it, and the reason is returned.
async fn start(
    config: Config,
    ports: Ports,
    render: RenderMetrics,
) -> Result<(Node, Option<String>), StartError> {
    let clients = || client_interface(Some(Arc::clone(&render)));
    let why = match with_redis_address(&config) {
        None => None,
        Some(Err(why)) => Some(why.to_owned()),
        Some(Ok(guess)) => match Node::start(guess, ports.clone(), clients()).await {
            Err(StartError::Listen { address, source }) if address == REDIS_ADDRESS => {
                Some(source.to_string())
            }
            outcome => return Ok((outcome?, None)),
        },
    };
    Ok((Node::start(config, ports, clients()).await?, why))
}

/// The settings of a development cluster with Redis's default address, if they name none, or why that cannot be used.
fn with_redis_address(config: &Config) -> Option<Result<Config, &'static str>> {
    if !config.dev || config.resp_listen.is_some() {
        return None;
    }
    if addresses_meet(&config.listen, REDIS_ADDRESS) {
        return Some(Err("listen (--listen) has this port"));
    }
    Some(Ok(Config { resp_listen: Some(REDIS_ADDRESS.to_owned()), ..config.clone() }))
}

/// The TLS network of the node, if the settings name certificates.
fn tls_net(config: &Config) -> Result<Option<TlsNet>, UsageError> {
    let Some(TlsFiles { ca, pair: Some(pair) }) = tls_files(config) else { return Ok(None) };
    let net = TlsNet::open(&ca, &pair, config.tls_optional);
    let mut net = net.map_err(|error| UsageError(error.to_string()))?;
    warn_of_refused_certificate(config);
    if let Some(key) = &config.tls_ca_key {
        check_ca_key(key)?;
        let signer = NodeSigner::open(&ca, Path::new(key));
        net = net.signing(signer.map_err(|error| UsageError(format!("tls_ca_key: {error}")))?);
    }
    if let Some(files) = issued_files(config) {
        net = net.renewing(files);
    }
    Ok(Some(net))
}

/// Refuses the key of the authority, which makes nodes and clients of any name, where others may read it, as the file of a
/// secret. A file that is not there is named where it is read.
fn check_ca_key(key: &str) -> Result<(), UsageError> {
    let Ok(metadata) = std::fs::metadata(key) else { return Ok(()) };
    let checked = check_private(Path::new(key), &metadata, "key");
    checked.map_err(|error| UsageError(format!("tls_ca_key: {error}")))
}

/// The files of the node's certificate, if the cluster issues it.
fn issued_files(config: &Config) -> Option<IssuedFiles> {
    let files = IssuedFiles::of(Path::new(&config.data));
    (config.tls_cert.as_deref() == files.certificate().to_str()).then_some(files)
}

/// The authority, certificate and key of the node, if the settings name all three.
fn tls_files(config: &Config) -> Option<TlsFiles> {
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    let pair = KeyPairFiles { certificate: path(&config.tls_cert)?, key: path(&config.tls_key)? };
    Some(TlsFiles { ca: path(&config.tls_ca)?, pair: Some(pair) })
}

async fn keep_metrics_small(metrics: PrometheusHandle) {
    let mut interval = tokio::time::interval(METRICS_UPKEEP);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

impl ServeArgs {
    fn settings(&self) -> Result<Settings> {
        let mut layers = Vec::new();
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let file = self.config.clone().or_else(|| variable("UMBEL_CONFIG").map(PathBuf::from));
        if let Some(path) = file {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(&path)
                .map_err(|error| UsageError(format!("{name}: cannot read settings: {error}")))?;
            layers.push(Layer::file(&name, &text)?);
        }
        layers.push(Layer::environment(variable)?);
        layers.push(Layer::flags(self.table()));
        let issued = Layer::issued(&layers, |files| files.certificate().exists());
        layers.splice(0..0, issued);
        Ok(Settings::resolve(&layers)?)
    }

    /// The settings that flags set.
    fn table(&self) -> Table {
        let mut table = Table::new();
        let mut set = |name: &str, value: Option<Value>| {
            table.extend(value.map(|value| (name.to_owned(), value)));
        };
        let text = |value: &Option<String>| value.clone().map(Value::String);
        let number = |value: Option<u32>| value.map(|number| Value::Integer(number.into()));
        set("dev", self.dev.then_some(Value::Boolean(true)));
        set("listen", text(&self.listen));
        set("resp_listen", text(&self.resp));
        set("console", text(&self.console));
        set("advertise", text(&self.advertise));
        set("data", text(&self.data));
        let founders = self.initial_cluster.iter().map(String::as_str);
        set("initial_cluster", (founders.len() > 0).then(|| settings::texts(founders)));
        set("join", text(&self.join));
        let roots = self.job_roots.iter().map(String::as_str);
        set("job_roots", (roots.len() > 0).then(|| settings::texts(roots)));
        set("shards", number(self.shards));
        set("replicas", number(self.replicas));
        set("zone", text(&self.zone));
        set("fsync", (!self.fsync).then_some(Value::Boolean(false)));
        set("insecure", self.insecure.then_some(Value::Boolean(true)));
        set("tls_cert", text(&self.tls_cert));
        set("tls_key", text(&self.tls_key));
        set("tls_ca", text(&self.tls_ca));
        set("key_file", text(&self.key_file));
        set("tls_ca_key", text(&self.tls_ca_key));
        set("join_token_file", text(&self.join_token_file));
        set("log_format", text(&self.log_format));
        table
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_of_the_authority_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.key");
        std::fs::write(&path, "key").unwrap();
        let checked = |mode| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            check_ca_key(path.to_str().unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(checked(0o600), Ok(()));
        let refused = checked(0o666).unwrap_err();
        assert!(refused.starts_with("tls_ca_key: "), "{refused}");
        assert!(refused.contains("ca.key: others than its owner may") && refused.contains("666"));
        assert_eq!(check_ca_key("nowhere/ca.key").map_err(|error| error.to_string()), Ok(()));
    }

    #[test]
    fn a_development_cluster_says_that_its_own_address_is_the_one_of_redis() {
        let dev = Config { dev: true, listen: "127.0.0.1:0".to_owned(), ..Config::default() };
        let guess = with_redis_address(&dev).and_then(Result::ok);
        assert_eq!(guess.and_then(|config| config.resp_listen).as_deref(), Some(REDIS_ADDRESS));
        for listen in [REDIS_ADDRESS, "localhost:6379", "0.0.0.0:6379"] {
            let own = Config { listen: listen.to_owned(), ..dev.clone() };
            let why = with_redis_address(&own).and_then(Result::err);
            assert_eq!(why, Some("listen (--listen) has this port"), "{listen}");
        }
        // Whoever names an address, or runs no development cluster, is not guessed at.
        let named = Config { resp_listen: Some("127.0.0.1:0".to_owned()), ..dev.clone() };
        for config in [named, Config { dev: false, ..dev }] {
            assert!(with_redis_address(&config).is_none());
        }
    }
}

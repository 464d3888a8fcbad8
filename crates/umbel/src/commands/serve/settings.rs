//! Settings in four layers: built in, file, environment, flags; later layers override earlier ones.

use super::job_settings::JobSettings;
use super::logs::LogSettings;
use crate::exit::{UsageError, refuse};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use umbel_node::Config;
use umbel_node::config::{Setting, SettingKind};
use umbel_ports::IssuedFiles;

/// All settings of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Settings of the node.
    pub(crate) node: Config,
    /// Settings of the log.
    pub(crate) logs: LogSettings,
    /// Settings of jobs.
    pub(crate) jobs: JobSettings,
    /// Whether a layer names a data folder.
    pub(crate) names_data: bool,
}

/// All settings of the server, in the order in which they are printed.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    Config::SETTINGS.iter().chain(JobSettings::SETTINGS).chain(LogSettings::SETTINGS)
}

/// The meaning and default of a setting, for the help text of its flag.
///
/// # Panics
///
/// If there is no such setting. Names are literals, and tests generate every help text.
pub(crate) fn about(name: &str) -> String {
    let setting = all().find(|setting| setting.name == name).expect("flags name settings");
    let mut text = setting.lines().collect::<Vec<_>>().join(" ").replace('`', "");
    text.truncate(text.trim_end_matches('.').len());
    match defaults(false).get(name) {
        Some(Value::String(value)) => text += &format!(" [default: {value}]"),
        Some(Value::Integer(value)) => text += &format!(" [default: {value}]"),
        _ => {}
    }
    text
}

/// One source of settings.
pub(crate) struct Layer {
    /// The name of the source in error messages.
    source: String,
    table: Table,
}

impl Layer {
    /// A layer from the text of a TOML file.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, names an unknown setting, or has a value of the wrong type.
    pub(crate) fn file(name: &str, text: &str) -> Result<Self, UsageError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            // The library's own message has several lines, to show the position.
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            UsageError(format!("{name}:{line}: not TOML: {}", error.message()))
        })?;
        for (key, value) in &table {
            let Some(setting) = all().find(|setting| setting.name == key) else {
                refuse!("{name}: \"{key}\" is no setting; `umbel serve --print-config` lists them");
            };
            if !fits(value, setting.kind) {
                refuse!("{name}: {key} = {value}: expected {}", words(setting.kind));
            }
        }
        Ok(Self { source: name.to_owned(), table })
    }

    /// A layer from the environment, given a function that looks up a variable. Empty variables count as
    /// unset.
    ///
    /// # Errors
    ///
    /// If a value cannot be parsed as its setting's type.
    pub(crate) fn environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UsageError> {
        let mut table = Table::new();
        for setting in all() {
            let name = setting.variable();
            let Some(text) = variable(&name).filter(|text| !text.is_empty()) else { continue };
            let value = parse(&text, setting.kind).ok_or_else(|| {
                UsageError(format!("{name}={text}: expected {}", words(setting.kind)))
            })?;
            table.insert(setting.name.to_owned(), value);
        }
        Ok(Self { source: "environment".to_owned(), table })
    }

    /// The lowest layer: the paths of the TLS files that the cluster has issued, or will issue for a join
    /// token. None if another layer names TLS files, or the cluster issues none.
    pub(crate) fn issued(layers: &[Self], is_there: impl Fn(&IssuedFiles) -> bool) -> Option<Self> {
        let named = |name: &str| layers.iter().rev().find_map(|layer| layer.table.get(name));
        if ["tls_cert", "tls_key", "tls_ca"].into_iter().any(|name| named(name).is_some()) {
            return None;
        }
        let built_in = Config::default().data;
        let data = named("data").and_then(Value::as_str).unwrap_or(&built_in);
        let files = IssuedFiles::of(Path::new(data));
        if named("join_token_file").is_none() && !is_there(&files) {
            return None;
        }
        let paths = [
            ("tls_cert", files.certificate()),
            ("tls_key", files.key()),
            ("tls_ca", files.authorities()),
        ];
        let text = |path: PathBuf| Some(Value::String(path.to_str()?.to_owned()));
        let table = paths.into_iter().map(|(name, path)| Some((name.to_owned(), text(path)?)));
        Some(Self { source: "data folder".to_owned(), table: table.collect::<Option<_>>()? })
    }

    /// A layer from flags.
    pub(crate) fn flags(table: Table) -> Self {
        Self { source: "flags".to_owned(), table }
    }
}

impl Settings {
    /// Applies the layers to the built-in settings, in order, and checks the result.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or two contradict each other.
    pub(crate) fn resolve(layers: &[Layer]) -> Result<Self, UsageError> {
        let mut merged = Table::new();
        for layer in layers {
            for (name, value) in &layer.table {
                check_range(layer, name, value)?;
                merged.insert(name.clone(), value.clone());
            }
        }
        let is_dev = merged.get("dev") == Some(&Value::Boolean(true));
        let names_data = merged.contains_key("data");
        let mut table = defaults(is_dev);
        table.extend(merged);
        let mut part = |settings: &[Setting]| -> Table {
            settings.iter().filter_map(|setting| table.remove_entry(setting.name)).collect()
        };
        let (node, logs) = (part(Config::SETTINGS), part(LogSettings::SETTINGS));
        let jobs = part(JobSettings::SETTINGS);
        let wrong = |error: toml::de::Error| UsageError(error.message().to_owned());
        let node: Config = node.try_into().map_err(wrong)?;
        let logs: LogSettings = logs.try_into().map_err(wrong)?;
        node.validate().map_err(|error| UsageError(error.to_string()))?;
        let jobs: JobSettings = jobs.try_into().map_err(wrong)?;
        logs.validate()?;
        jobs.validate()?;
        Ok(Self { node, logs, jobs, names_data })
    }

    /// All settings with their descriptions, as a file that yields the same settings again.
    pub(crate) fn print(&self) -> String {
        let mut table = to_table(&self.node, &self.logs, &self.jobs);
        if self.node.dev && !self.names_data {
            table.remove("data");
        }
        let mut text = String::from(
            "# Settings of `umbel serve`. Environment variables, each setting in upper case with the\n\
             # prefix UMBEL_, like UMBEL_LISTEN, override this file; flags override both.\n",
        );
        for setting in all() {
            text.push('\n');
            for line in setting.lines() {
                let _ = writeln!(text, "# {line}");
            }
            let _ = match (table.get(setting.name), setting.kind) {
                (Some(value), _) => writeln!(text, "{} = {value}", setting.name),
                (None, _) => writeln!(text, "#{} = \"\"", setting.name),
            };
        }
        text
    }
}

/// The built-in settings, for a development cluster or any other.
fn defaults(is_dev: bool) -> Table {
    let node = if is_dev { Config::development() } else { Config::default() };
    to_table(&node, &LogSettings::default(), &JobSettings::default())
}

fn to_table(node: &Config, logs: &LogSettings, jobs: &JobSettings) -> Table {
    let mut table = Table::try_from(node).expect("numbers are in the range that files hold");
    table.extend(Table::try_from(logs).expect("texts are TOML"));
    table.extend(Table::try_from(jobs).expect("numbers are in the range that files hold"));
    table
}

/// Refuses numbers outside of the setting's type; the setting's own range is checked later.
fn check_range(layer: &Layer, name: &str, value: &Value) -> Result<(), UsageError> {
    let Value::Integer(number) = value else { return Ok(()) };
    let most = match name {
        "shards" | "replicas" | "cores" => i64::from(u32::MAX),
        _ => i64::MAX,
    };
    if (0..=most).contains(number) {
        return Ok(());
    }
    let source = &layer.source;
    refuse!("{source}: {name} = {number}: expected 0 to {most}")
}

fn fits(value: &Value, kind: SettingKind) -> bool {
    match (kind, value) {
        (SettingKind::Text, Value::String(_))
        | (SettingKind::Number, Value::Integer(_))
        | (SettingKind::Switch, Value::Boolean(_)) => true,
        (SettingKind::Texts, Value::Array(values)) => values.iter().all(Value::is_str),
        _ => false,
    }
}

fn parse(text: &str, kind: SettingKind) -> Option<Value> {
    Some(match kind {
        SettingKind::Text => Value::String(text.to_owned()),
        SettingKind::Texts => texts(text.split(',')),
        SettingKind::Number => Value::Integer(text.parse().ok()?),
        SettingKind::Switch => Value::Boolean(match text {
            "1" | "true" => true,
            "0" | "false" => false,
            _ => return None,
        }),
    })
}

/// A list of texts, trimmed, without empty ones.
pub(crate) fn texts<'a>(parts: impl Iterator<Item = &'a str>) -> Value {
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
}

fn words(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Text => "a text in quotes",
        SettingKind::Texts => "a list of texts, like [\"a:7300\", \"b:7300\"]",
        SettingKind::Number => "a whole number",
        SettingKind::Switch => "true or false",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Result<Layer, UsageError> {
        Layer::environment(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn flags(text: &str) -> Layer {
        Layer::flags(text.parse().unwrap())
    }

    #[test]
    fn later_layers_win() {
        let file = || Layer::file("f.toml", "shards = 5\nreplicas = 5\ndata = \"x\"").unwrap();
        let built_in = Settings::resolve(&[]).unwrap();
        assert_eq!((built_in.node.shards, built_in.names_data), (0, false));
        let settings = Settings::resolve(&[file()]).unwrap();
        assert_eq!((settings.node.shards, settings.node.replicas), (5, 5));
        let variables = || environment(&[("UMBEL_SHARDS", "6"), ("UMBEL_REPLICAS", "")]).unwrap();
        let settings = Settings::resolve(&[file(), variables()]).unwrap();
        assert_eq!((settings.node.shards, settings.node.replicas), (6, 5));
        let settings = Settings::resolve(&[file(), variables(), flags("shards = 7")]).unwrap();
        assert_eq!((settings.node.shards, settings.node.replicas), (7, 5));
        assert_eq!((&*settings.node.data, settings.names_data), ("x", true));
    }

    #[test]
    fn a_development_cluster_is_small_unless_told_otherwise() {
        let settings = Settings::resolve(&[flags("dev = true")]).unwrap();
        assert_eq!((settings.node.shards, settings.node.replicas), (1, 1));
        let variables = environment(&[("UMBEL_DEV", "1"), ("UMBEL_SHARDS", "9")]).unwrap();
        let settings = Settings::resolve(&[variables]).unwrap();
        assert_eq!((settings.node.shards, settings.node.replicas), (9, 1));
        assert!(settings.print().contains("\n#data = \"\"\n"));
    }

    #[test]
    fn issued_certificates_are_taken_unless_others_are_named() {
        let certificate = |text: &str, is_there| {
            let layers = [flags(text)];
            let issued = Layer::issued(&layers, |_| is_there);
            let settings = Settings::resolve(&issued.into_iter().chain(layers).collect::<Vec<_>>());
            settings.unwrap().node.tls_cert
        };
        assert_eq!(certificate("data = \"n\"", false), None);
        assert_eq!(certificate("data = \"n\"", true).as_deref(), Some("n/tls/node.pem"));
        let joins = "join = \"a:1\"\njoin_token_file = \"t\"\nlisten = \"10.0.0.1:1\"";
        assert_eq!(certificate(joins, false).as_deref(), Some("umbel-data/tls/node.pem"));
        let own = format!("{joins}\ntls_cert = \"c\"\ntls_key = \"k\"\ntls_ca = \"a\"");
        assert_eq!(certificate(&own, true).as_deref(), Some("c"));
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_place() {
        let file = |text| Layer::file("f.toml", text).err().map(|error| error.to_string()).unwrap();
        assert!(file("shards = 1\nshards = 2").starts_with("f.toml:2: "));
        assert!(file("shard = 1").contains("f.toml: \"shard\" is no setting"));
        assert!(file("shards = \"1\"").contains("expected a whole number"));
        assert!(file("initial_cluster = [1]").contains("expected a list"));
        for (name, value) in [("UMBEL_SHARDS", "many"), ("UMBEL_DEV", "yes")] {
            let error_text = environment(&[(name, value)]).err().unwrap().to_string();
            assert!(error_text.starts_with(&format!("{name}={value}: expected ")), "{error_text}");
        }
        let error_text = |text| Settings::resolve(&[flags(text)]).unwrap_err().to_string();
        assert_eq!(error_text("shards = -1"), "flags: shards = -1: expected 0 to 4294967295");
        assert_eq!(error_text("shards = 1025"), "shards = 1025: expected 0 to 1024");
        assert_eq!(
            error_text("log_format = \"xml\""),
            "log_format = \"xml\": expected text or json"
        );
        assert!(error_text("listen = \"0.0.0.0:1\"").contains("--insecure"));
    }

    #[test]
    fn what_is_printed_sets_the_same_again() {
        let variables = environment(&[
            ("UMBEL_LISTEN", "127.0.0.1:1"),
            ("UMBEL_INITIAL_CLUSTER", "a:1, 127.0.0.1:1"),
            ("UMBEL_FSYNC", "false"),
            ("UMBEL_LOG_LEVEL", "a=\"b\""),
        ]);
        let settings = Settings::resolve(&[variables.unwrap()]).unwrap();
        let again = Layer::file("printed", &settings.print()).unwrap();
        let again = Settings { names_data: false, ..Settings::resolve(&[again]).unwrap() };
        assert_eq!(again, settings);
        assert_eq!(again.node.initial_cluster, ["a:1", "127.0.0.1:1"]);
    }

    #[test]
    fn flags_are_described_by_their_settings() {
        assert!(about("shards").ends_with(" [default: 0]"));
        assert!(about("dev").starts_with("A cluster of this node alone"));
    }
}

//! Changes of whole filters: clear, rotate, rename, drop.

use super::replicated::report_unconfirmed;
use super::show;
use crate::commands::cluster::show::{facts, print};
use anyhow::Result;
use serde_json::json;
use umbel_client::{Cleared, Client, Dropped};

/// Clears a filter, and lists the nodes that have not confirmed that their copies are empty.
pub(super) async fn clear(client: &Client, name: &str, json: bool) -> Result<()> {
    let Cleared { generation, unconfirmed_nodes } = client.clear(name).await?;
    let value = json!({
        "generation": generation,
        "unconfirmed_nodes": unconfirmed_nodes,
    });
    print(json, &value, || facts(&[("generation", generation.to_string())]))?;
    report_unconfirmed(
        &unconfirmed_nodes,
        "each empties its copy as soon as it hears of it, and answers from the old items until then",
    );
    Ok(())
}

/// Ends the current slice of a manual window.
pub(super) async fn rotate(client: &Client, name: &str, json: bool) -> Result<()> {
    let generation = client.rotate(name).await?;
    print(json, &json!({ "generation": generation }), || {
        facts(&[("generation", generation.to_string())])
    })
}

/// Renames a filter; with `replaces`, a filter that has the new name is dropped.
pub(super) async fn rename(
    client: &Client,
    (name, new_name): (&str, &str),
    replaces: bool,
    json: bool,
) -> Result<()> {
    let renamed = match replaces {
        true => client.rename_over(name, new_name).await?,
        false => client.rename(name, new_name).await?,
    };
    show::print_summary(json, &renamed)
}

/// Drops a filter, and lists the nodes that have not confirmed that their copies are gone.
pub(super) async fn drop_filter(client: &Client, name: &str, json: bool) -> Result<()> {
    let Dropped { unconfirmed_nodes } = client.drop_filter(name).await?;
    let value = json!({ "dropped": name, "unconfirmed_nodes": unconfirmed_nodes });
    print(json, &value, String::new)?;
    report_unconfirmed(
        &unconfirmed_nodes,
        "each drops its copy as soon as it hears of it, and may answer from it until then",
    );
    Ok(())
}

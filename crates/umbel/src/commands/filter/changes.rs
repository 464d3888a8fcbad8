//! Changes of whole filters: clear, rotate, rename, drop.

use super::replicated::report_unconfirmed;
use super::show::{summary_facts, summary_json};
use crate::printer::{facts, print};
use anyhow::Result;
use serde_json::json;
use umbel_client::{Cleared, Client, Dropped, Renamed};

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

/// Renames a filter, and lists the nodes that have not confirmed the new name; with `replaces`, a filter that
/// has that name is dropped.
pub(super) async fn rename(
    client: &Client,
    (name, new_name): (&str, &str),
    replaces: bool,
    json: bool,
) -> Result<()> {
    let Renamed { filter, unconfirmed_nodes } = if replaces {
        client.rename_over(name, new_name).await?
    } else {
        client.rename(name, new_name).await?
    };
    let mut value = summary_json(&filter);
    value["unconfirmed_nodes"] = unconfirmed_nodes.as_slice().into();
    print(json, &value, || facts(&summary_facts(&filter)))?;
    report_unconfirmed(
        &unconfirmed_nodes,
        "each knows the new name as soon as it hears of it, and answers as before until then",
    );
    Ok(())
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

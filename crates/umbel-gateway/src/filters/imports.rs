//! Imports: what came is converted, and one that is refused for its key is counted and written to the audit log.

use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt as _};
use tonic::Status;
use umbel_coordinator::Coordinator;
use umbel_coordinator::transfers::ImportPart;
use umbel_engine::FilterId;
use umbel_engine::meta::FilterRecord;
use umbel_ports::locked;
use umbel_proto::v1;

use super::super::audit;
use super::super::caller::Caller;
use super::super::convert;
use crate::errors::Result;

/// Creates a filter from an export that comes from the caller.
///
/// # Errors
/// If the caller may not do this, or the export cannot be imported.
pub(super) async fn import(
    coordinator: &Arc<Coordinator>,
    caller: &Caller,
    chunks: impl Stream<Item = Result<v1::ImportChunk, Status>> + Unpin,
) -> Result<(FilterId, FilterRecord)> {
    // The filter of a header that the caller may send.
    let named = Mutex::new(None);
    let parts = chunks.map(|chunk| {
        let part = convert::import_part(caller, chunk);
        match &part {
            Ok(ImportPart::Head(head)) => *locked(&named) = Some(head.name.clone()),
            Ok(_) => {}
            // If the name was denied, that has been told.
            Err(_) => *locked(&named) = None,
        }
        part
    });
    let imported = coordinator.import(parts, caller.principal_name()).await;
    let name = locked(&named).take();
    if let (Err(failure), Some(name)) = (&imported, name) {
        audit::import_failed(caller, &name, failure);
    }
    imported
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use umbel_coordinator::transfers::ExportWish;
    use umbel_engine::meta::{ClusterVerb, FilterName, FilterVerb, Rights};
    use umbel_filter::Kind;
    use umbel_node::failure::CallFailure;
    use umbel_ports::PeerIdentity;

    use super::*;
    use crate::audit::Called;
    use crate::audit_recorder::AuditRecorder;
    use crate::credential::Credential;
    use crate::test_node::{SECRET, create, deadline, grant, put, start_alone};

    /// The header of an import of this filter under another name.
    async fn header(coordinator: &Arc<Coordinator>, of: &str, name: &str) -> v1::ImportChunk {
        let of = FilterName::new(of).unwrap();
        let wish = ExportWish { known: None, is_snapshot: false };
        let mut parts =
            Box::pin(coordinator.export(&of, wish, deadline()).await.unwrap().into_stream());
        let first = parts.next().await.unwrap().unwrap();
        let Some(v1::export_chunk::Part::Header(exported)) = convert::export_chunk(first).part
        else {
            panic!("an export begins with its header");
        };
        let header = v1::ImportHeader { name: name.to_owned(), exported: Some(exported) };
        v1::ImportChunk { part: Some(v1::import_chunk::Part::Header(header)) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_import_that_is_refused_for_its_key_is_audited_once() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        create(&coordinator, "mail.seen", Kind::Blocked).await;
        let of_root = Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() };
        put(&node, "root", of_root).await;
        put(&node, "manager", grant("own.*", &[FilterVerb::Manage])).await;
        let shown = Credential::Token { name: "manager", secret: SECRET };
        let path = Called::Path("/umbel.v1.Filters/Import".into());
        let manager = Caller::identify(&PeerIdentity::Unchecked, shown, &coordinator, false)
            .at(Some("10.0.0.7:1".to_owned().into()))
            .calling(Some(path));
        let recorder = AuditRecorder::default();
        let recording = recorder.begin();
        for name in ["own.seen", "mail.new"] {
            let chunk = header(&coordinator, "mail.seen", name).await;
            let refused = import(&coordinator, &manager, stream::iter([Ok(chunk)])).await;
            assert!(matches!(refused, Err(CallFailure::Denied { .. })), "{refused:?}");
        }
        drop(recording);
        let lines = recorder.lines();
        let [key, name] = &lines[..] else { panic!("{lines:#?}") };
        let begin =
            r#"denied who="principal manager" from="10.0.0.7:1" call="/umbel.v1.Filters/Import""#;
        let of_key = format!(r#"{begin} ordered="filter=own.seen" outcome="refused" reason="#);
        assert!(key.starts_with(&of_key) && key.contains("hash key"), "{key}");
        let of_name = format!(r#"{begin} ordered="verb=manage filter=mail.new" outcome="refused""#);
        assert!(name.starts_with(&of_name), "{name}");
        drop((manager, coordinator));
        node.shutdown().await;
    }
}

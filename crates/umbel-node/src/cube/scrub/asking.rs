//! The initiating side of a comparison.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use umbel_engine::{Generation, NodeId};
use umbel_proto::v1;
use umbel_proto::v1::scrub_part::Part;
use umbel_raft::peer::{add_hello, member_client};

use super::image::ComparedImage;
use super::line::{Line, Outlet, PART_PATIENCE, PARTS_WAITING_MAX, claim_part, of_status};
use super::talk::{Side, talk};
use super::{CopyComparison, SESSION_TIME_MAX, ScrubError, SetBits};
use crate::comparisons::Comparison;
use crate::cube::copies::Copies;
use crate::cube::copy::Copy;
use crate::metrics;

/// Compares this node's copy of a generation with a partner's, and counts the outcome.
pub(crate) async fn compare(
    copies: &Copies,
    copy: &Arc<Copy>,
    generation: Generation,
    partner: NodeId,
) -> Result<CopyComparison, ScrubError> {
    let asking = Arc::clone(&copies.scrubs().asking);
    let _turn = timeout(SESSION_TIME_MAX, asking.acquire_owned()).await;
    let _turn = _turn.map_err(|_| ScrubError::Busy)?.expect("it is never closed");
    let compared = compare_at(copies, copy, generation, partner).await;
    let comparison = Comparison::of_copies(copies.member.seed().wall_ms(), &compared);
    copies.scrubs().last.note((copy.filter, partner), comparison);
    match &compared {
        Ok(compared) => {
            let lost_count = compared.ours.lost_count + compared.theirs.lost_count;
            let news_count = compared.ours.news_count + compared.theirs.news_count;
            metrics::scrub_compared(lost_count, news_count);
        }
        Err(error) => {
            metrics::scrub_failed();
            tracing::debug!(filter = %copy.filter, %partner, %error, "copies were not compared");
        }
    }
    compared
}

/// Finds the partner, and compares the copies within the time limit.
async fn compare_at(
    copies: &Copies,
    copy: &Arc<Copy>,
    generation: Generation,
    partner: NodeId,
) -> Result<CopyComparison, ScrubError> {
    let address = copies.member.address_of(partner).ok_or(ScrubError::NoAddress(partner))?;
    let comparing = compare_now(copies, copy, generation, (partner, &address));
    let compared = timeout(SESSION_TIME_MAX, comparing).await;
    let compared = compared.unwrap_or(Err(ScrubError::Timeout(SESSION_TIME_MAX)));
    compared.map_err(|error| error.of_partner(partner, &address))
}

async fn compare_now(
    copies: &Copies,
    copy: &Arc<Copy>,
    generation: Generation,
    (partner, address): (NodeId, &str),
) -> Result<CopyComparison, ScrubError> {
    let broken = |what: String| ScrubError::Broken(what);
    let member = &copies.member;
    let client = member_client(member.net(), address, member.identity().member(partner));
    let mut client = client.map_err(|error| broken(error.to_string()))?;
    let (out, messages) = mpsc::channel(PARTS_WAITING_MAX);
    let open = v1::ScrubOpen { filter: copy.filter.0, generation: generation.0 };
    let first = v1::ScrubPart { part: Some(Part::Open(open)) };
    out.try_send(first).map_err(|_| broken("nothing can be sent".to_owned()))?;
    let mut request = Request::new(ReceiverStream::new(messages));
    add_hello(&mut request, member.identity(), partner);
    let response = timeout(PART_PATIENCE, client.scrub(request)).await;
    let response = response.map_err(|_| ScrubError::Timeout(PART_PATIENCE))?;
    let parts = response.map_err(|status| of_status(&status))?.into_inner();
    let mut line = Line { parts, outlet: Outlet { out, message: std::convert::identity } };

    let theirs = line.claim().await?;
    copy.check_coverage(partner, &theirs)?;
    let mut image = ComparedImage::of(copies, copy, generation)?;
    line.send(claim_part(&image.claim)).await?;
    let outcome = talk(copies, Side::Asking, &mut image, &mut line).await?;
    let ours = image.set_missing(copies, partner, &theirs)?;
    let theirs = match line.next().await? {
        Some(Part::End(end)) if end.failure.is_empty() => {
            SetBits { lost_count: end.lost_bits, news_count: end.news_bits }
        }
        Some(Part::End(end)) => return Err(ScrubError::NotSet(end.failure)),
        _ => return Err(ScrubError::Nonsense("an end is expected".to_owned())),
    };
    let byte_count = outcome.sent_bytes + outcome.received_bytes;
    Ok(CopyComparison { ours, theirs, byte_count })
}

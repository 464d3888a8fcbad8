// Events of a node, read by fetch: an EventSource could not send the token.

/** Longest event that is taken: above the largest view of the largest cluster. */
const EVENT_CHARS_MAX = 16 << 20;

/** An answer that is no stream: its status, and what the node says. */
export class Refused extends Error {
  constructor(status, text) {
    super(text.trim() || `the node answered ${status}`);
    this.status = status;
  }
}

/** Yields { event, data } as they come, and undefined for a comment; ends with the stream. */
export async function* events(url, token, signal) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(url, { headers, signal, cache: "no-store", credentials: "same-origin" });
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    if (rest.length > EVENT_CHARS_MAX) throw new Error("an event is too long");
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) yield parsed(block);
  }
}

function parsed(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  return fields.event && { event: fields.event, data: JSON.parse(fields.data) };
}

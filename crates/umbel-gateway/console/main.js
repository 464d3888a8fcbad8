// The page: which view is shown, who is signed in, and whether what is shown is live.

import { permit, signedInBy } from "./actions.js";
import * as cluster from "./cluster.js";
import * as cube from "./cube.js";
import { element, say, set } from "./elements.js";
import * as filters from "./filters.js";
import * as jobs from "./jobs.js";
import * as repair from "./repair.js";
import { time } from "./figures.js";
import { Refused, events } from "./stream.js";

const VIEWS = [
  { name: "cluster", title: "Cluster", create: cluster.create },
  { name: "filters", title: "Filters", create: filters.create },
  { name: "jobs", title: "Jobs", create: jobs.create },
  { name: "cube", title: "Cube", create: cube.create },
  { name: "repair", title: "Repair", create: repair.create },
];

/** Pause before a broken stream is opened again, in milliseconds: the first, and the longest. */
const PAUSE_MS = [500, 10000];

/** A stream says something each 15 seconds: after so many milliseconds of silence it has broken. */
const SILENCE_MS_MAX = 40000;

const at = (id) => document.getElementById(id);
const part = { connection: at("connection"), notice: at("notice"), signIn: at("sign-in"), view: at("view"), node: at("node"), rights: at("rights") };

/** In memory alone: gone with the page. */
let token = "";
let running = new AbortController();
let stream = new AbortController();
let liveAt = Date.now();
let last = null;
signedInBy(() => token);

function connection(state, text) {
  set(part.connection, "data-state", state);
  set(document.body, "data-state", state);
  say(part.connection, text);
}

function notice(text) {
  part.notice.hidden = !text;
  say(part.notice, text);
}

function chosen() {
  return VIEWS.find((view) => view.name === location.hash.slice(1)) ?? VIEWS[0];
}

const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); });
});

/** Shows a view until another one is chosen. */
function open() {
  running.abort();
  running = new AbortController();
  const view = chosen();
  document.title = `${view.title} – Umbel`;
  for (const link of at("views").querySelectorAll("a")) {
    set(link, "aria-current", link.hash === `#${view.name}` ? "page" : null);
  }
  part.view.replaceChildren(element("h1", { class: "unseen" }, view.title));
  part.view.hidden = false;
  part.signIn.hidden = true;
  notice("");
  connection("waiting", "connecting");
  const { signal } = running;
  last = null;
  permit([]);
  let asked = new URLSearchParams();
  // A view may ask for another part of itself: the stream is opened anew, what is shown stays.
  const reopen = (fields) => {
    asked = new URLSearchParams(fields);
    stream.abort();
  };
  const update = view.create(part.view, reopen);
  const follow = async () => {
    let wait = PAUSE_MS[0];
    while (!signal.aborted) {
      stream = new AbortController();
      const url = `/console/events/${view.name}?${asked}`;
      try {
        const both = AbortSignal.any([signal, stream.signal]);
        for await (const heard of events(url, token, both)) {
          wait = PAUSE_MS[0];
          if (take(heard, update)) break;
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && !refused(error)) return;
      }
      if (signal.aborted) return;
      if (!stream.signal.aborted) {
        connection("stale", `not live since ${time(liveAt)}`);
        await pause(wait, signal);
        wait = Math.min(2 * wait, PAUSE_MS[1]);
      }
    }
  };
  follow();
}

/** Takes what was heard; true if it was the last. */
function take(heard, update) {
  liveAt = Date.now();
  if (heard?.event === "end") {
    notice(`The node ended the stream: ${heard.data.why}.`);
    return true;
  }
  connection("live", "live");
  if (heard?.event === "rights") {
    permit(heard.data.actions);
    const { refusal, is_proved: isProved, who } = heard.data;
    say(part.rights, refusal ? `Looking only: ${refusal}.` : isProved ? `You are ${who}.` : "Nothing is proved here: whoever reaches this port may do everything.");
    if (last) update(last);
  }
  if (heard?.event !== "snapshot") return false;
  const { node, cluster_id: identity, version, failure, unheard_since_ms: since } = heard.data;
  say(part.node, `node ${node} · cluster ${identity} · umbel ${version}`);
  notice(failure ? `The node cannot tell: ${failure}.`
    : since ? `This node does not hear a majority of the cluster since ${time(since)}. It shows what it knows.` : "");
  if (failure) return false;
  last = heard.data;
  update(last);
  return false;
}

/** Says why the node tells nothing; true if it may do so later. */
function refused({ status, message }) {
  if (status !== 401 && status !== 403) {
    notice(message);
    return true;
  }
  part.view.hidden = status === 401;
  part.signIn.hidden = status !== 401;
  if (status === 401) {
    at("token").value = "";
    say(at("sign-in-why"), token ? "This token is unknown, revoked or expired." : "This cluster tells nothing to who has proved nothing.");
    token = "";
    connection("off", "signed out");
    say(part.rights, "");
    at("token").focus();
  } else {
    notice(`This view is not yours to see: ${message}.`);
    connection("off", "not shown");
  }
  return false;
}

/** A network that swallows everything breaks no stream by itself. */
setInterval(() => {
  if (document.body.dataset.state === "live" && Date.now() - liveAt > SILENCE_MS_MAX) {
    connection("stale", `not live since ${time(liveAt)}`);
    stream.abort();
  }
}, 5000);

part.signIn.addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  // Others on the way could read it.
  if (!window.isSecureContext) {
    say(at("sign-in-why"), "This connection is not encrypted, so the token is not sent. Use TLS, or a browser on the node’s machine.");
    return;
  }
  token = at("token").value.trim();
  at("token").value = "";
  open();
  at("main").focus();
});

at("skip").addEventListener("click", () => at("main").focus());
at("views").append(...VIEWS.map(({ name, title }) => element("li", {}, element("a", { href: `#${name}` }, title))));
window.addEventListener("hashchange", open);
open();
